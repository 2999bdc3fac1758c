//! Which tests a run consists of, and which it leaves out because their outcome is known.

use std::collections::BTreeMap;

use crate::test::{About, Part, Test};

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only what is part of `make test`.
    pub smoke: bool,
    /// Leaves out every test that passed.
    pub resume: bool,
    /// Leaves out nothing.
    pub all: bool,
    /// Parts of names, or whole names; none of them means every test.
    pub names: Vec<String>,
    /// Parts of names that are left out.
    pub skip: Vec<String>,
    pub exact: bool,
}

#[derive(Default)]
pub struct Selection {
    pub run: Vec<Test>,
    /// Passed on this machine for the same sources.
    pub known: Vec<Test>,
}

impl Selection {
    pub fn new(tests: Vec<Test>, wanted: &Wanted, passed: impl Fn(&Test) -> bool) -> Self {
        let asked_for = tests.into_iter().filter(|test| wanted.includes(test));
        let (known, run) = asked_for.partition(|test| wanted.leaves_out_known(test) && passed(test));
        Self { run, known }
    }

    /// `dns 3, volumes 2`
    pub fn known_by_group(&self) -> String {
        let mut groups = BTreeMap::<_, usize>::new();
        for test in &self.known {
            *groups.entry(test.name.split("::").next().unwrap_or_default()).or_default() += 1;
        }
        groups.iter().map(|(group, count)| format!("{group} {count}")).collect::<Vec<_>>().join(", ")
    }
}

impl Wanted {
    fn includes(&self, test: &Test) -> bool {
        let named =
            |name: &String| if self.exact { test.name == name } else { test.name.contains(name.as_str()) };
        (!self.smoke || test.part != Part::Full)
            && (self.names.is_empty() || self.names.iter().any(named))
            && !self.skip.iter().any(|skip| test.name.contains(skip.as_str()))
    }

    /// Tests of the operator are part of every `make test`; those of the testbed only after a change of it.
    fn leaves_out_known(&self, test: &Test) -> bool {
        let unchanged_testbed = self.smoke && test.about == About::Testbed && test.part == Part::Smoke;
        !self.all && (self.resume || unchanged_testbed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;
    use crate::test::Topology;

    fn tests() -> Vec<Test> {
        let test = |name| Topology::Bare.shared(name, |_| Box::pin(async { Ok(()) }));
        vec![
            test("volumes::one").smoke().about(About::Testbed),
            test("volumes::two").smoke().about(About::Testbed),
            test("basics::core").always().about(About::Testbed),
            test("lifecycle::quick").smoke(),
            test("lifecycle::long"),
        ]
    }

    fn names(tests: &[Test]) -> Vec<&'static str> {
        tests.iter().map(|test| test.name).collect()
    }

    fn run(wanted: &Wanted, passed: bool) -> Vec<&'static str> {
        names(&Selection::new(tests(), wanted, |_| passed).run)
    }

    #[test]
    fn make_test_leaves_out_what_is_known_of_the_testbed_and_nothing_else() {
        let smoke = Wanted { smoke: true, ..Wanted::default() };
        let everything = ["volumes::one", "volumes::two", "basics::core", "lifecycle::quick"];
        assert_eq!(run(&smoke, false), everything);
        assert_eq!(run(&smoke, true), ["basics::core", "lifecycle::quick"]);
        assert_eq!(run(&Wanted { all: true, ..smoke.clone() }, true), everything);
        let changed = Selection::new(tests(), &smoke, |test| test.name != "volumes::two");
        assert_eq!((names(&changed.run).len(), names(&changed.known)), (3, vec!["volumes::one"]));
        assert_eq!(changed.known_by_group(), "volumes 1");
    }

    #[test]
    fn every_test_is_run_unless_it_is_taken_up_again_or_named() {
        let wanted = Wanted::default();
        assert_eq!(run(&wanted, true).len(), 5);
        assert!(run(&Wanted { resume: true, ..wanted.clone() }, true).is_empty());
        let named = |name: &str| Wanted { names: vec![name.into()], ..wanted.clone() };
        assert_eq!(run(&named("lifecycle"), false), ["lifecycle::quick", "lifecycle::long"]);
        assert!(run(&Wanted { exact: true, ..named("lifecycle") }, false).is_empty());
        let skip = Wanted { skip: vec!["::one".into(), "life".into()], ..wanted };
        assert_eq!(run(&skip, false), ["volumes::two", "basics::core"]);
    }

    /// That the operator is killed between any two effects of a scaling is tested in `operator/tests/harness`.
    #[test]
    fn make_test_takes_away_what_the_operator_needs() {
        for name in [
            "operator_faults::the_api_server_is_away_while_scaling_out",
            "operator_faults::one_etcd_is_cut_off_and_another_cluster_scales",
            "operator_faults::one_of_two_is_killed_while_scaling",
        ] {
            let test = suite::all().into_iter().find(|test| test.name == name).expect(name);
            assert_eq!(test.part, Part::Smoke, "{name}");
        }
    }

    #[test]
    fn no_two_tests_have_one_name() {
        let all = suite::all();
        let mut names = names(&all);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
