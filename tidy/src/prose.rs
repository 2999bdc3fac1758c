//! User-facing text: string literals and doc comments of Rust sources, and documents. A phrase is found even where
//! the source breaks its line.

use std::iter::Peekable;
use std::str::Chars;

/// A piece of text with single spaces, and the line of the file that each of its characters comes from.
#[derive(Default)]
pub struct Text {
    characters: Vec<char>,
    lines: Vec<usize>,
}

impl Text {
    /// A whole document.
    pub fn of(document: &str) -> Self {
        let mut text = Self::default();
        for (index, line) in document.lines().enumerate() {
            text.push_all(line, index + 1);
            text.push(' ', index + 1);
        }
        text
    }

    fn push_all(&mut self, words: &str, line: usize) {
        words.chars().for_each(|c| self.push(c, line));
    }

    fn push(&mut self, c: char, line: usize) {
        let c = if c.is_whitespace() { ' ' } else { c };
        if c != ' ' || self.characters.last().is_some_and(|&last| last != ' ') {
            self.characters.push(c.to_ascii_lowercase());
            self.lines.push(line);
        }
    }

    /// The lines on which these words begin, whatever their case. Parts of longer words and names in placeholders such
    /// as `{word}` do not count.
    pub fn lines_with(&self, phrase: &str) -> Vec<usize> {
        let wanted: Vec<char> = phrase.to_ascii_lowercase().chars().collect();
        let is_word = |at: Option<usize>| {
            at.and_then(|at| self.characters.get(at)).is_some_and(|c| c.is_alphanumeric() || *c == '_')
        };
        let begins = self.characters.windows(wanted.len()).enumerate().filter(|(_, part)| *part == wanted);
        let is_name =
            |at: usize| at.checked_sub(1).and_then(|before| self.characters.get(before)) == Some(&'{');
        begins
            .filter(|(at, _)| {
                !is_word(at.checked_sub(1)) && !is_word(Some(at + wanted.len())) && !is_name(*at)
            })
            .filter_map(|(at, _)| self.lines.get(at).copied())
            .collect()
    }
}

/// What users can read of a Rust source: its string literals, outside of what is compiled for tests only; and its doc
/// comments.
#[derive(Default)]
pub struct Source {
    pub literals: Vec<Text>,
    pub doc_comments: Vec<Text>,
    /// Modules in files of their own that are compiled for tests only.
    pub test_modules: Vec<String>,
}

impl Source {
    pub fn of(source: &str) -> Self {
        let mut scanner = Scanner { rest: source.chars().peekable(), line: 1, found: Self::default() };
        let mut code = String::new();
        while let Some(token) = scanner.next() {
            match token {
                Token::Code(c) if c.is_whitespace() => {
                    if !code.ends_with(' ') {
                        code.push(' ');
                    }
                }
                Token::Code(c) => code.push(c),
                Token::Literal(text) => scanner.found.literals.push(text),
            }
            if code.ends_with("#[cfg(test)]") {
                code.clear();
                let item = scanner.skip_item();
                scanner.found.test_modules.extend(item.strip_prefix("mod ").map(str::to_owned));
            }
        }
        scanner.found
    }
}

enum Token {
    Code(char),
    Literal(Text),
}

struct Scanner<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
    found: Source,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<Token> {
        loop {
            match self.take()? {
                '/' if self.rest.peek() == Some(&'/') => self.line_comment(),
                '/' if self.rest.peek() == Some(&'*') => self.block_comment(),
                '"' => return Some(Token::Literal(self.literal())),
                'r' if matches!(self.rest.peek(), Some('"' | '#')) => match self.raw_literal() {
                    Some(text) => return Some(Token::Literal(text)),
                    None => return Some(Token::Code('r')),
                },
                '\'' => self.character(),
                c => return Some(Token::Code(c)),
            }
        }
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn line_comment(&mut self) {
        let line = self.line;
        let mut comment = String::new();
        while let Some(c) = self.take().filter(|&c| c != '\n') {
            comment.push(c);
        }
        let Some(words) = comment.strip_prefix("//").or_else(|| comment.strip_prefix("/!")) else { return };
        // Lines that follow each other are one text.
        let docs = &mut self.found.doc_comments;
        if docs.last().is_none_or(|text| text.lines.last().is_none_or(|&last| last + 1 < line)) {
            docs.push(Text::default());
        }
        if let Some(text) = docs.last_mut() {
            text.push_all(words, line);
            text.push(' ', line);
        }
    }

    fn block_comment(&mut self) {
        let mut last = ' ';
        while let Some(c) = self.take() {
            if (last, c) == ('*', '/') {
                return;
            }
            last = c;
        }
    }

    fn literal(&mut self) -> Text {
        let mut text = Text::default();
        while let Some(c) = self.take().filter(|&c| c != '"') {
            match c {
                '\\' => match self.take() {
                    // The source breaks the line, the text does not.
                    Some('\n') => while self.rest.next_if(|c| *c == ' ').is_some() {},
                    Some('n' | 't' | 'r') | None => text.push(' ', self.line),
                    Some(c) => text.push(c, self.line),
                },
                c => text.push(c, self.line),
            }
        }
        text
    }

    /// None if it is a name that begins with `r#`.
    fn raw_literal(&mut self) -> Option<Text> {
        let mut fence = 0;
        while self.rest.next_if_eq(&'#').is_some() {
            fence += 1;
        }
        self.rest.next_if_eq(&'"')?;
        let mut text = Text::default();
        while let Some(c) = self.take() {
            if c == '"' && (0..fence).all(|_| self.rest.next_if_eq(&'#').is_some()) {
                break;
            }
            text.push(c, self.line);
        }
        Some(text)
    }

    /// A character, which may be a quotation mark, or the name of a lifetime.
    fn character(&mut self) {
        let first = self.take();
        if first == Some('\\') {
            self.take();
            while self.take().is_some_and(|c| c != '\'') {}
        } else {
            self.rest.next_if_eq(&'\'');
        }
    }

    /// Passes over the next item, and gives its head.
    fn skip_item(&mut self) -> String {
        let (mut head, mut depth) = (String::new(), 0);
        while let Some(token) = self.next() {
            match token {
                Token::Code('{') => depth += 1,
                Token::Code('}') if depth == 1 => break,
                Token::Code('}') => depth -= 1,
                Token::Code(';') if depth == 0 => return head.trim().to_owned(),
                Token::Code(c) if depth == 0 => head.push(c),
                Token::Code(_) | Token::Literal(_) => {}
            }
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHRASE: &str = "the members are away";

    fn lines(texts: &[Text]) -> Vec<usize> {
        texts.iter().flat_map(|text| text.lines_with(PHRASE)).collect()
    }

    #[test]
    fn a_phrase_in_a_literal_is_found_on_its_line_even_if_the_source_breaks_it() {
        for (source, line) in [
            ("fn f() {\n    say(\"The members are away\");\n}", 2),
            ("say(\"so: the members \\\n      are away\")", 1),
            ("say(\n  r#\"\n the \"members\" or the members are\naway\"#)", 3),
            ("let quote = '\"'; let other = '\\'';\nsay(\"the members are away\")", 2),
            ("fn f<'a>(text: &'a str) { say(\"{text}: the members are away\\n\") }", 1),
        ] {
            assert_eq!(lines(&Source::of(source).literals), [line], "{source}");
        }
    }

    #[test]
    fn comments_tests_and_parts_of_words_do_not_count() {
        for source in [
            "// \"the members are away\"",
            "/* \"the members are away\" */",
            "#[cfg(test)]\nmod tests {\n    fn f() { say(\"the members are away\") }\n}",
            "#[cfg(test)]\nfn f() { if x { say(\"{}\") } say(\"the members are away\") }",
            "say(\"breathe members are away\"); say(\"the members are awayish\")",
            "say(\"the members\"); say(\"are away\")",
            "say(\"{the members are away}\")",
        ] {
            assert_eq!(lines(&Source::of(source).literals), [0; 0], "{source}");
        }
        let after = "#[cfg(test)]\nuse tests::say;\nconst TEXT: &str = \"the members are away\";";
        assert_eq!(lines(&Source::of(after).literals), [3]);
    }

    #[test]
    fn doc_comments_are_read_across_their_lines() {
        let source = "/// Whether the members\n/// are away.\n// The members are away.\nstruct Away;\n/// The members\nfn f() {}\n/// are away";
        assert_eq!(lines(&Source::of(source).doc_comments), [1]);
    }

    #[test]
    fn test_modules_in_files_of_their_own_are_named() {
        assert_eq!(Source::of("mod a;\n#[cfg(test)]\nmod tests;\nmod b;").test_modules, ["tests"]);
    }

    #[test]
    fn a_phrase_in_a_document_is_found_across_its_lines() {
        assert_eq!(Text::of("# Title\n\nOnce the\nmembers are\naway.").lines_with(PHRASE), [3]);
    }
}
