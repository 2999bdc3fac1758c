//! Listings in pages that fit into a termination message.

use serde::Serialize;

use super::layout::CopyName;
use super::report::{Done, MAX_BYTES, Problem, Summary};

/// What is around a page in its report: versions, outcome, names of fields, and the name of the next page.
const AROUND_BYTES: usize = 512;
/// An error that says why a manifest is damaged can be long.
const PROBLEM_BYTES: usize = 300;
/// No summary that this program writes is longer; whatever a manifest has, a page has room for one.
const SUMMARY_BYTES: usize = 1024;

/// Collects entries, newest first, until a page is full.
#[derive(Default)]
pub struct Page {
    copies: Vec<Summary>,
    unreadable: Vec<Problem>,
    bytes: usize,
}

impl Page {
    /// False if the entry does not fit any more; then it is the first of the next page.
    pub fn add(&mut self, entry: Result<Summary, Problem>) -> bool {
        let entry = entry.and_then(|summary| match length(&summary) {
            ..=SUMMARY_BYTES => Ok(summary),
            _ => Err(Problem {
                name: summary.name,
                message: "its manifest has values that are too long".into(),
            }),
        });
        let entry = entry.map_err(|problem| {
            let end = problem.message.floor_char_boundary(PROBLEM_BYTES);
            Problem { message: problem.message[..end].to_owned(), ..problem }
        });
        let bytes = 1 + entry.as_ref().map_or_else(length, length);
        if self.bytes + bytes > MAX_BYTES - AROUND_BYTES {
            return false;
        }
        self.bytes += bytes;
        match entry {
            Ok(summary) => self.copies.push(summary),
            Err(problem) => self.unreadable.push(problem),
        }
        true
    }

    /// With the last name on this page, if there are more.
    pub fn finish(self, next: Option<CopyName>) -> Done {
        Done::List { copies: self.copies, unreadable: self.unreadable, next }
    }
}

fn length(entry: &impl Serialize) -> usize {
    serde_json::to_string(entry).expect("text and numbers are always JSON").len()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::backup::manifest::{Compression, Encryption, Revisions, Verification};
    use crate::backup::report::{Outcome, Report};
    use crate::backup::{FormatVersion, Word};

    fn name() -> CopyName {
        CopyName::new(Timestamp::UNIX_EPOCH, u64::MAX)
    }

    fn summary() -> Summary {
        Summary {
            name: name(),
            completed_at: Timestamp::MAX,
            revision: Revisions { lowest: i64::MIN, highest: i64::MIN },
            etcd_version: "3.6.16".into(),
            bytes: u64::MAX,
            compression: Compression::Zstd.into(),
            encryption: Encryption::Age.into(),
            verification: Word::from(Verification::ReadBack),
        }
    }

    #[test]
    fn a_full_page_fits_into_a_termination_message() {
        let problem = || Problem { name: name(), message: "\"\n".repeat(10_000) };
        let long = || Summary { etcd_version: "3".repeat(5000), ..summary() };
        for entry in [&(|| Ok(summary())) as &dyn Fn() -> _, &(|| Err(problem())), &(|| Ok(long()))] {
            let mut page = Page::default();
            let mut count = 0;
            while page.add(entry()) {
                count += 1;
            }
            assert!(count >= 4, "{count}");
            let report = Report {
                format_version: FormatVersion::CURRENT,
                program_version: "0.1.0".into(),
                outcome: Outcome::Succeeded(page.finish(Some(name()))),
            };
            assert!(report.render().len() <= MAX_BYTES);
        }
    }
}
