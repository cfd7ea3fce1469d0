package process

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// rest reads the remaining lines.
func rest(l *lines) []string {
	var all []string
	for {
		line, err := l.next(context.Background())
		if err == io.EOF {
			return all
		}
		all = append(all, line)
	}
}

func TestLinesComeOutAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab\n]{0,60}`).Draw(t, "text")
		l := newLines()
		for left := text; left != ""; {
			n := rapid.IntRange(1, len(left)).Draw(t, "piece")
			if m, err := io.WriteString(l, left[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			left = left[n:]
		}
		l.close()
		want := strings.Split(text, "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		if got := rest(l); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q became %q", text, got)
		}
	})
}

func TestLinesAreBounded(t *testing.T) {
	l := newLines()
	for i := range keptLines + 10 {
		fmt.Fprintf(l, "line %d\n", i)
	}
	fmt.Fprint(l, strings.Repeat("x", longestLine), "yyy")
	l.close()
	got := rest(l)
	if len(got) != keptLines || got[0] != "line 11" {
		t.Errorf("%d lines from %q", len(got), got[0])
	}
	if last := got[len(got)-1]; last != l.newest() || len(last) != longestLine || strings.Contains(last, "y") {
		t.Errorf("the last line has %d bytes", len(last))
	}
}
