//! Text that others wrote, made fit for a text node.

/// `text` as the HTML parser will keep it: NUL is dropped, carriage returns are line
/// feeds, and a node is never empty or a lone leading line feed, which `<pre>` drops.
/// A text node that the parser removes would end hydration.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '\r' => {
                chars.next_if_eq(&'\n');
                out.push('\n');
            }
            c => out.push(c),
        }
    }
    let kept = out.trim_start_matches('\n').trim_end();
    if kept.is_empty() { " ".to_owned() } else { kept.to_owned() }
}

/// A name others gave, on one line: characters that do not show are written as their
/// codes, so that a name cannot turn round the words of ours that follow it.
pub fn name(text: &str) -> String {
    plain(&domain::action::marked(text))
}

/// Words others wrote, over as many lines as they came in: characters that do not show
/// are written as their codes.
pub fn lines(text: &str) -> String {
    let text = plain(text);
    text.split('\n').map(domain::action::marked).collect::<Vec<_>>().join("\n")
}

/// `1 line`, `3 lines`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// A length of time that was set, as people say it: `15 min`, `1 h 30 min`, `7 days`.
pub fn length(seconds: i64) -> String {
    let s = u64::try_from(seconds).unwrap_or(0);
    if s >= 86_400 && s.is_multiple_of(86_400) {
        return counted(s / 86_400, "day", "days");
    }
    match s {
        0..60 => format!("{s} s"),
        _ => domain::time::span(std::time::Duration::from_secs(s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_the_parser_would_drop_still_makes_a_node() {
        assert_eq!(plain("\n"), " ");
        assert_eq!(plain(""), " ");
        assert_eq!(plain("\0"), "\u{fffd}");
        assert_eq!(plain("a\r\nb\rc"), "a\nb\nc");
        assert_eq!(plain("\n\n  x\n"), "  x");
    }

    #[test]
    fn a_name_cannot_reverse_what_follows_it() {
        assert_eq!(name("rm \u{202e}x"), "rm [U+202E]x");
    }

    #[test]
    fn lengths_read_as_people_say_them() {
        assert_eq!(length(45), "45 s");
        assert_eq!(length(900), "15 min");
        assert_eq!(length(5400), "1 h 30 min");
        assert_eq!(length(604_800), "7 days");
    }
}
