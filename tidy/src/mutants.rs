//! Small bugs to plant, each with the test that has to find it: the files in `test/mutants`.
//!
//! A file begins with why the line matters. Then come the arguments of `cargo test`, and edits in the form of a patch
//! without line numbers: lines begin with a space (stays), `-` (goes) or `+` (comes). What stays and what goes has to occur
//! exactly once in its file, so that edits elsewhere in it change nothing.
//!
//! ```text
//! The API server has to reject a write whose object has changed since.
//!
//! test: -p etcd-operator --test harness writes_are_conditional
//! file: operator/src/cluster/execute.rs
//!          let mut change = change;
//! -        change["metadata"]["uid"] = json!(object.uid());
//! ```

use std::path::Path;

use crate::{files, read, root};

#[derive(Debug, PartialEq, Eq)]
pub struct Mutant {
    pub name: String,
    pub why: String,
    /// Of `cargo test`. The last one is the name of the test.
    pub test: Vec<String>,
    pub edits: Vec<Edit>,
}

/// A change of one file.
#[derive(Debug, PartialEq, Eq)]
pub struct Edit {
    pub file: String,
    pub find: String,
    pub replace: String,
}

/// In the order of their names.
pub fn all() -> Vec<Mutant> {
    let folder = root().join("test/mutants");
    let own = |path: &Path| path.parent() == Some(&folder);
    files(".txt")
        .iter()
        .filter(|path| own(path))
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            parse(&name, &read(path)).unwrap_or_else(|error| panic!("test/mutants/{name}.txt: {error}"))
        })
        .collect()
}

pub fn parse(name: &str, text: &str) -> Result<Mutant, String> {
    let (why, rest) = text.split_once("\n\n").ok_or("there is no empty line after the reason")?;
    let mut lines = rest.lines();
    let test = lines.next().and_then(|line| line.strip_prefix("test: ")).ok_or("`test: ` is missing")?;
    let mut edits: Vec<Edit> = Vec::new();
    for line in lines {
        if let Some(file) = line.strip_prefix("file: ") {
            edits.push(Edit { file: file.into(), find: String::new(), replace: String::new() });
            continue;
        }
        let edit = edits.last_mut().ok_or("`file: ` is missing")?;
        let (stays, goes) = match line.split_at_checked(1) {
            Some((" ", _)) => (true, true),
            Some(("-", _)) => (false, true),
            Some(("+", _)) => (true, false),
            _ => return Err(format!("a line begins with a space, `-` or `+`: {line}")),
        };
        let content = &line[1..];
        if goes {
            edit.find.push_str(&format!("{content}\n"));
        }
        if stays {
            edit.replace.push_str(&format!("{content}\n"));
        }
    }
    if edits.is_empty() || edits.iter().any(|edit| edit.find == edit.replace) {
        return Err("it changes nothing".into());
    }
    let test = test.split_whitespace().map(str::to_owned).collect();
    Ok(Mutant { name: name.into(), why: why.replace('\n', " "), test, edits })
}

impl Edit {
    /// What the file is then.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(format!("{} has {count} times, not once:\n{}", self.file, self.find)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Why it\nmatters.\n\ntest: -p core some_test\nfile: a.rs\n one\n-two\n+three\n";

    #[test]
    fn a_mutant_is_read_and_applied() {
        let mutant = parse("name", TEXT).expect("it can be read");
        assert_eq!((mutant.why.as_str(), mutant.test.len()), ("Why it matters.", 3));
        assert_eq!(mutant.edits[0].apply("zero\none\ntwo\n").expect("it applies"), "zero\none\nthree\n");
    }

    #[test]
    fn what_does_not_occur_once_is_not_applied() {
        let mutant = parse("name", TEXT).expect("it can be read");
        for text in ["one\n", "one\ntwo\none\ntwo\n"] {
            assert!(mutant.edits[0].apply(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_mutant() {
        for (from, to) in
            [("\n\n", "\n"), ("test: ", ""), ("file: a.rs\n", ""), (" one", "one"), ("-two\n+three\n", "")]
        {
            assert!(parse("name", &TEXT.replace(from, to)).is_err(), "{from}");
        }
    }
}
