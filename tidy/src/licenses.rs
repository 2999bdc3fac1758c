//! License expressions as crates state them (SPDX): `(MIT OR Apache-2.0) AND Unicode-3.0`.

/// Whether the licenses in a list are enough to use something that is licensed so.
pub fn allows(allowed: &[String], expression: &str) -> bool {
    // An old way to say OR.
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = text.split_whitespace().collect();
    let mut parser = Parser { allowed, words: &words };
    let answer = parser.any();
    answer && parser.words.is_empty()
}

struct Parser<'a> {
    allowed: &'a [String],
    words: &'a [&'a str],
}

impl Parser<'_> {
    fn any(&mut self) -> bool {
        let mut answer = self.all();
        while self.takes("OR") {
            answer |= self.all();
        }
        answer
    }

    fn all(&mut self) -> bool {
        let mut answer = self.one();
        while self.takes("AND") {
            answer &= self.one();
        }
        answer
    }

    /// What cannot be read is not allowed.
    fn one(&mut self) -> bool {
        if self.takes("(") {
            let answer = self.any();
            return self.takes(")") && answer;
        }
        let Some((license, rest)) = self.words.split_first() else { return false };
        self.words = rest;
        let license = if self.takes("WITH") {
            let exception = self.words.split_first();
            self.words = exception.map_or(self.words, |(_, rest)| rest);
            format!("{license} WITH {}", exception.map_or("", |(name, _)| name))
        } else {
            (*license).to_owned()
        };
        self.allowed.contains(&license)
    }

    fn takes(&mut self, word: &str) -> bool {
        let takes = self.words.first() == Some(&word);
        if takes {
            self.words = &self.words[1..];
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(expression: &str) -> bool {
        allows(&["MIT".into(), "ISC".into(), "Unicode-3.0".into()], expression)
    }

    #[test]
    fn one_of_several_is_enough_and_each_of_several_is_needed() {
        for expression in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-3.0",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "ISC AND (MIT OR GPL-3.0)",
        ] {
            assert!(allowed(expression), "{expression}");
        }
        for expression in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "GPL-3.0 OR LGPL-3.0"] {
            assert!(!allowed(expression), "{expression}");
        }
        assert!(allowed("GPL-3.0 AND ISC OR MIT"), "AND binds stronger");
    }

    #[test]
    fn an_exception_is_another_license() {
        assert!(!allowed("MIT WITH LLVM-exception"));
        assert!(allowed("MIT WITH LLVM-exception OR MIT"));
    }

    #[test]
    fn what_cannot_be_read_is_not_allowed() {
        for expression in ["", "MIT ISC", "(MIT", "MIT AND", "AND MIT", "MIT WITH"] {
            assert!(!allowed(expression), "{expression}");
        }
    }
}
