package epdns_test

import (
	"reflect"
	"strings"
	"testing"
)

// This file reads as much of the shell's language as pages use.

// shellCommands are the simple commands of a piece of shell, each as its words: without
// comments, redirections, variables that are set before it, here documents, and the words
// that hold commands together. Those in $(…) come after the one that they are part of.
func shellCommands(text string) [][]string {
	r := shellReader{in: text}
	r.read()
	return r.out
}

type shellReader struct {
	in      string
	out     [][]string
	words   []string
	word    strings.Builder
	inWord  bool
	skip    bool     // the next word is what a redirection leads to
	heredoc []string // delimiters of the documents that begin with the next line
	here    bool     // the next word is such a delimiter
	inner   []string // what stood in $(…)
}

// connectives hold commands together where a command would begin.
var connectives = map[string]bool{"if": true, "then": true, "else": true, "elif": true, "fi": true, "while": true, "until": true,
	"do": true, "done": true, "{": true, "}": true, "!": true, "sudo": true, "export": true}

func (r *shellReader) read() {
	for r.in != "" {
		c := r.in[0]
		rest := r.in[1:]
		switch {
		case c == '\\' && strings.HasPrefix(rest, "\n"):
			rest = rest[1:]
		case c == '\\' && rest != "":
			r.add(rest[:1])
			rest = rest[1:]
		case c == '\'' || c == '"':
			quoted, after, _ := strings.Cut(rest, string(c))
			for c == '"' && strings.HasSuffix(quoted, `\`) {
				more, further, _ := strings.Cut(after, `"`)
				quoted, after = strings.TrimSuffix(quoted, `\`)+`"`+more, further
			}
			r.add(quoted)
			rest = after
		case c == '$' && strings.HasPrefix(rest, "("):
			end := closing(rest)
			r.inner = append(r.inner, rest[1:end])
			r.add("$" + rest[:end+1])
			rest = rest[end+1:]
		case c == '#' && !r.inWord:
			_, rest, _ = strings.Cut(rest, "\n")
			rest = "\n" + rest
		case c == ' ' || c == '\t':
			r.endWord()
		case c == '\n':
			r.endCommand()
			rest = r.skipDocuments(rest)
		case c == '(' && strings.HasPrefix(rest, ")"): // the name of a function
			r.word.Reset()
			r.inWord = false
			rest = rest[1:]
		case strings.IndexByte(";|&()", c) >= 0:
			r.endCommand()
		case c == '>' || c == '<':
			if strings.Trim(r.word.String(), "0123456789") == "" { // a descriptor
				r.word.Reset()
				r.inWord = false
			}
			r.endWord()
			r.here = strings.HasPrefix(r.in, "<<")
			r.skip = !r.here
			rest = strings.TrimLeft(rest, "<>&-")
		default:
			r.add(string(c))
		}
		r.in = rest
	}
	r.endCommand()
}

// closing is where the parenthesis ends that a text begins with.
func closing(text string) int {
	depth := 0
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(text) - 1
}

func (r *shellReader) add(s string) {
	r.word.WriteString(s)
	r.inWord = true
}

func (r *shellReader) endWord() {
	if !r.inWord {
		return
	}
	word := r.word.String()
	r.word.Reset()
	r.inWord = false
	switch {
	case r.here:
		r.heredoc = append(r.heredoc, word)
		r.here = false
	case r.skip:
		r.skip = false
	case len(r.words) == 0 && (connectives[word] || isAssignment(word)):
	default:
		r.words = append(r.words, word)
	}
}

func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == ""
}

func (r *shellReader) endCommand() {
	r.endWord()
	if len(r.words) > 0 && r.words[0] != "for" && r.words[0] != "case" {
		r.out = append(r.out, r.words)
	}
	r.words = nil
	for _, text := range r.inner {
		r.out = append(r.out, shellCommands(text)...)
	}
	r.inner = nil
}

// skipDocuments is the text behind the here documents that begin it.
func (r *shellReader) skipDocuments(text string) string {
	for _, end := range r.heredoc {
		for text != "" {
			line, rest, _ := strings.Cut(text, "\n")
			text = rest
			if strings.TrimSpace(line) == end {
				break
			}
		}
	}
	r.heredoc = nil
	return text
}

func TestShellCommands(t *testing.T) {
	for text, want := range map[string][][]string{
		"":                                   nil,
		"# nothing":                          nil,
		"a b  c # d":                         {{"a", "b", "c"}},
		"a\nb; c && d":                       {{"a"}, {"b"}, {"c"}, {"d"}},
		"a b | c -d &":                       {{"a", "b"}, {"c", "-d"}},
		"a \\\n  b":                          {{"a", "b"}},
		`a 'b  c' "d"`:                       {{"a", "b  c", "d"}},
		`a "b \"c\""`:                        {{"a", `b "c"`}},
		"a\\ b":                              {{"a b"}},
		"a#b":                                {{"a#b"}},
		"A=1 b --c=d":                        {{"b", "--c=d"}},
		"A=1":                                nil,
		"a >b 2>&1 c":                        {{"a", "c"}},
		"a 2 <b":                             {{"a", "2"}},
		"a <<'X' b\nin the\n document\nX\nc": {{"a", "b"}, {"c"}},
		"(cd a && b)":                        {{"cd", "a"}, {"b"}},
		"a $(b \"c d\" | e) f":               {{"a", `$(b "c d" | e)`, "f"}, {"b", "c d"}, {"e"}},
		"until a b; do c; done":              {{"a", "b"}, {"c"}},
		"for x in 1 2; do a $x; done":        {{"a", "$x"}},
		"f() { a \"$@\" --b; }\nf c":         {{"a", "$@", "--b"}, {"f", "c"}},
		"sudo a; export B=c; A=$(d) e; export F=$(g)": {{"a"}, {"e"}, {"d"}, {"g"}},
	} {
		if got := shellCommands(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
