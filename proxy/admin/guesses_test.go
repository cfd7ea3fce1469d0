package admin

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestGuesses: requests without a valid token are told of once a minute, with their number.
func TestGuesses(t *testing.T) {
	t.Parallel()

	var b bytes.Buffer
	log, g, now := slog.New(slog.NewTextHandler(&b, nil)), new(guesses), time.Now()
	for i := range 121 {
		g.note(log, "192.0.2.1:5", errors.New("no such token"), now.Add(time.Duration(i)*time.Second))
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "requests=1") || !strings.Contains(lines[1], "client=192.0.2.1:5") || !strings.Contains(lines[2], "requests=60") {
		t.Errorf("%s", b.String())
	}
}
