//! Which versions of etcd can be built.

use anyhow::{Result, bail};

/// The version as Go writes it: `3.6.4` and `v3.6.4` are both `v3.6.4`.
///
/// Before 3.5 etcd was not split into the modules that we require.
pub fn normal(text: &str) -> Result<String> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let (release, pre) = bare.split_once('-').map_or((bare, None), |(release, pre)| (release, Some(pre)));
    let numbers: Option<Vec<u32>> = release.split('.').map(number).collect();
    let is_new_enough = match numbers.as_deref() {
        Some([3, 5, 0]) => pre.is_none(),
        Some([3, minor, _]) => *minor >= 5,
        _ => false,
    };
    if !is_new_enough || !pre.is_none_or(is_pre_release) {
        bail!("cannot build etcd `{text}`: give a full version, v3.5.0 or later, such as v3.6.4");
    }
    Ok(format!("v{bare}"))
}

/// Neither sign nor leading zeros.
fn number(digits: &str) -> Option<u32> {
    digits.parse::<u32>().ok().filter(|number| number.to_string() == digits)
}

fn is_pre_release(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.split('.').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_versions_from_3_5_on_are_accepted_with_and_without_v() {
        for (given, expected) in [
            ("3.5.0", "v3.5.0"),
            ("v3.5.21", "v3.5.21"),
            ("3.6.16", "v3.6.16"),
            ("v3.7.0-rc.0", "v3.7.0-rc.0"),
            ("3.10.2", "v3.10.2"),
        ] {
            assert_eq!(normal(given).expect("it is accepted"), expected);
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_is_accepted() {
        for given in [
            "",
            "v",
            "latest",
            "3",
            "3.6",
            "v3.4.30",
            "2.3.8",
            "4.0.0",
            "3.5.0-rc.0",
            "3.6.x",
            "3.6.4.1",
            "vv3.6.4",
            "3.06.4",
            "3.6.+4",
            "3.6.-4",
            " 3.6.4",
            "3.6.4-",
            "3.6.4-rc..1",
            "3.6.4-$(id)",
            "3.6.4/../..",
            "3.6.4\n",
        ] {
            let error = normal(given).expect_err(given).to_string();
            assert!(error.contains(given) && error.contains("v3.5.0 or later"), "{error}");
        }
    }
}
