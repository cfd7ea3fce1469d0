package monitor_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A book is a log that tests read.
type book struct{ text bytes.Buffer }

func (b *book) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(&b.text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// says fails the test unless exactly these lines were logged since its last call.
func (b *book) says(t *testing.T, when string, lines ...string) {
	t.Helper()
	got := strings.TrimSuffix(b.text.String(), "\n")
	b.text.Reset()
	if want := strings.Join(lines, "\n"); got != want {
		t.Errorf("%s: logged\n%s\nwant\n%s", when, got, want)
	}
}

// at is a time of the clock.
func at(seconds float64) int64 { return int64(seconds * float64(time.Second)) }

func name(i int) string { return fmt.Sprintf("u%02d", i) }
