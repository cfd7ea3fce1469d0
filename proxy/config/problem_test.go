package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// problem is the one problem of a text.
func problem(t *testing.T, text string) config.Problem {
	t.Helper()
	_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
	if len(problems) != 1 {
		t.Fatalf("%d problems: %v", len(problems), problems)
	}
	return problems[0]
}

// TestWhatIsShown: the caret is below the text of the problem, whatever the line contains.
func TestWhatIsShown(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for _, c := range []struct{ name, text, marked string }{
		{"plain", "listeners: [{name: a, bind: ':1', upstream: u, connect: never}]" + upstreams, "never"},
		{"quotes", "listeners: [{name: a, bind: ':1', upstream: u, connect: \"never\"}]" + upstreams, `"never"`},
		{"an alias", "x-a: &anchor never\nlisteners: [{name: a, bind: ':1', upstream: u, connect: *anchor}]" + upstreams, "*anchor"},
		{"other alphabets before", "listeners: [{name: a, bind: ':1', upstream: u, allow: [], tls: äöü😀, connect: on_data}]" + upstreams, "äöü😀"},
		{"tabs", "listeners: [{name: a,\tbind: ':1',\tupstream: u,\tconnect:\tnever}]" + upstreams, "never"},
		{"a long line", "listeners: [{name: a, bind: ':1', upstream: u, x: " + long + "}]" + upstreams, "x"},
		{"the end of a long line", "x-a: " + long + "ä\nlisteners: [{x-b: [" + long + "], name: a, bind: ':1', upstream: u, connect: on_data}]" + upstreams, "x-b"},
		{"a key of another group", "listeners: [{name: a, bind: ':1', upstream: u, idle: 5s}]" + upstreams, "idle"},
	} {
		p := problem(t, c.text)
		lines := strings.Split(p.String(), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], p.Pos.String()+": "+p.Message) {
			t.Fatalf("%s: %s", c.name, p.String())
		}
		shown, carets := []rune(lines[1]), []rune(lines[2])
		from := slices.Index(carets, '^')
		to := from
		for to < len(carets) && carets[to] == '^' {
			to++
		}
		if got := string(shown[from:min(to, len(shown))]); got != c.marked {
			t.Errorf("%s: %q is marked, not %q\n%s", c.name, got, c.marked, p.String())
		}
		if !strings.HasSuffix(lines[2], p.Fix) || len(shown) > 250 {
			t.Errorf("%s:\n%s", c.name, p.String())
		}
	}
}

// TestDidYouMean: a likely correction is suggested.
func TestDidYouMean(t *testing.T) {
	for written, meant := range map[string]string{
		"timeout": "timeouts", "timeoust": "timeouts", "acceptProxy": "accept_proxy", "accept-proxy": "accept_proxy", "UPSTREAM": "upstream",
		"route": "routes", "sokcet": "socket", "limit": "limits", "dney": "deny", "transparency": "transparent", "http": "",
		strings.Repeat("a", 10000): "", "*": "",
	} {
		p := problem(t, listener(fmt.Sprintf("%q: {}", written)))
		if want := fmt.Sprintf("did you mean %q?", meant); (meant != "") != (p.Fix == want) {
			t.Errorf("%.20s: %s, want %q", written, p.Fix, meant)
		}
	}
}

// TestManyProblems: they are sorted, and their number is limited.
func TestManyProblems(t *testing.T) {
	_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": "upstreams:\n" + strings.Repeat("- {x: 1}\n", 1500)}, "/etc/p.yaml", nil)
	last := problems[len(problems)-1]
	if len(problems) != 1001 || !strings.HasPrefix(last.String(), "and ") || !strings.HasSuffix(last.Message, " more") {
		t.Errorf("%d problems, the last one %v", len(problems), last)
	}
	line := 0
	for _, p := range problems[:1000] {
		if p.Pos.Line < line {
			t.Fatalf("line %d comes after line %d", p.Pos.Line, line)
		}
		line = p.Pos.Line
	}
}
