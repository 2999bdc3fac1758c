//! Chains of the packet filter that are ours: made, and removed together with every rule that leads to them.

use anyhow::{Context, Result};

use crate::shell::{run, run_with_input};

/// A table of one network namespace.
pub struct Table<'a> {
    /// The words in front of a command that take it to the namespace.
    pub enter: &'a [String],
    /// `iptables` or `ip6tables`.
    pub family: &'a str,
    pub name: &'a str,
}

impl Table<'_> {
    /// Adds to the table what the script says.
    pub async fn restore(&self, script: &str) -> Result<()> {
        let restore = [format!("{}-restore", self.family), "-w".into(), "--noflush".into()];
        let words = [self.enter, &restore].concat();
        run_with_input(&words, script).await.map(drop).context("cannot change the packet filter")
    }

    /// Removes chains; those that are not there are fine.
    pub async fn remove(&self, ours: impl Fn(&str) -> bool) -> Result<()> {
        let save = [format!("{}-save", self.family), "-t".into(), self.name.into()];
        let saved = run(&[self.enter, &save].concat()).await?;
        match removal(&saved, self.name, ours) {
            Some(script) => self.restore(&script).await,
            None => Ok(()),
        }
    }
}

/// From a saved table, the script that removes our chains and every rule that leads to one.
fn removal(saved: &str, table: &str, ours: impl Fn(&str) -> bool) -> Option<String> {
    let declared = |line: &str| line.strip_prefix(':')?.split(' ').next().map(String::from);
    let chains: Vec<_> = saved.lines().filter_map(declared).filter(|chain| ours(chain)).collect();
    if chains.is_empty() {
        return None;
    }
    let jumps = saved.lines().filter_map(|line| {
        let rule = line.strip_prefix("-A ")?;
        let from = rule.split(' ').next()?;
        let target = rule.rsplit_once(" -j ")?.1.split(' ').next()?;
        (!ours(from) && ours(target)).then(|| format!("-D {rule}"))
    });
    let mut script = vec![format!("*{table}")];
    script.extend(jumps);
    script.extend(chains.iter().map(|chain| format!("-F {chain}")));
    script.extend(chains.iter().map(|chain| format!("-X {chain}")));
    script.push("COMMIT\n".into());
    Some(script.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "*filter\n:INPUT ACCEPT [0:0]\n:DOCKER - [0:0]\n:KUBE-FIREWALL - [0:0]\n:CUT-1 - [0:0]\n\
                         :CUT-12 - [0:0]\n-A INPUT -m comment --comment \"a b\" -j KUBE-FIREWALL\n-A INPUT -j DOCKER\n\
                         -A FORWARD ! -i lo -j CUT-12\n-A FORWARD ! -i lo -j CUT-1\n-A KUBE-FIREWALL -j DROP\n\
                         -A CUT-1 -j DROP\nCOMMIT\n";

    #[test]
    fn only_our_chains_and_the_rules_that_lead_to_them_are_removed() {
        assert_eq!(
            removal(SAVED, "filter", |chain| chain.starts_with("KUBE-") || chain == "CUT-12").as_deref(),
            Some(
                "*filter\n-D INPUT -m comment --comment \"a b\" -j KUBE-FIREWALL\n-D FORWARD ! -i lo -j CUT-12\n\
                 -F KUBE-FIREWALL\n-F CUT-12\n-X KUBE-FIREWALL\n-X CUT-12\nCOMMIT\n"
            )
        );
    }

    #[test]
    fn a_chain_whose_name_begins_like_ours_stays() {
        assert_eq!(
            removal(SAVED, "filter", |chain| chain == "CUT-1").as_deref(),
            Some("*filter\n-D FORWARD ! -i lo -j CUT-1\n-F CUT-1\n-X CUT-1\nCOMMIT\n")
        );
    }

    #[test]
    fn a_table_without_our_chains_is_left_alone() {
        assert_eq!(removal(SAVED, "filter", |chain| chain == "TESTBED"), None);
    }
}
