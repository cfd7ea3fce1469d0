package keypair_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/keypair"
)

// TestState: files that cannot be used leave the former certificate in use, and the state says so until they can.
func TestState(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "a.test")
	at := [2]string{filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")}
	write := func(cert, key string) {
		t.Helper()
		must(t, errors.Join(os.WriteFile(at[0], []byte(cert), 0o600), os.WriteFile(at[1], []byte(key), 0o600)))
	}
	write(cert, key)
	p, err := keypair.New(at[0], at[1], slog.New(slog.DiscardHandler))
	must(t, err)
	_, first, refused := p.State()
	if refused != nil {
		t.Error(refused)
	}
	write(cert+"\n", "no key")
	if path, now, refused := p.State(); path != at[0] || now != first || refused == nil {
		t.Errorf("%s, %v", path, refused)
	}
	write(cert, key+"\n")
	if _, now, refused := p.State(); now == first || refused != nil {
		t.Error(refused)
	}
}

// TestReplaced: files that are replaced by others are read, even if these have the same size and time.
func TestReplaced(t *testing.T) {
	t.Parallel()

	dir, size, then := t.TempDir(), 8<<10, time.Unix(1, 0) // as in an image that is built to be the same each time
	at := [2]string{filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")}
	replace := func() {
		t.Helper()
		cert, key := certificate.New(t, "a.test")
		for i, text := range []string{cert, key} {
			text += strings.Repeat("\n", size-len(text))
			must(t, errors.Join(os.WriteFile(at[i]+".new", []byte(text), 0o600), os.Chtimes(at[i]+".new", then, then), os.Rename(at[i]+".new", at[i])))
		}
	}
	replace()
	p, err := keypair.New(at[0], at[1], slog.New(slog.DiscardHandler))
	must(t, err)
	first := p.Now()
	replace()
	if p.Now() == first {
		t.Error("the former certificate is in use")
	}
}

// TestEnded: a certificate that has ended is logged once.
func TestEnded(t *testing.T) {
	t.Parallel()

	var log strings.Builder
	cert, key := certificate.Until(t, time.Now().Add(-time.Hour), "a.test")
	at := [2]string{filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")}
	must(t, errors.Join(os.WriteFile(at[0], []byte(cert), 0o600), os.WriteFile(at[1], []byte(key), 0o600)))
	p, err := keypair.New(at[0], at[1], slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	for range 3 {
		p.Now()
	}
	if n := strings.Count(log.String(), "level=WARN msg=\"a certificate has expired"); n != 1 {
		t.Errorf("it was logged %d times: %s", n, log.String())
	}
}

// TestPipes: a certificate or a key that becomes a pipe without a writer leaves the former certificate in use, and nobody waits.
func TestPipes(t *testing.T) {
	t.Parallel()

	for i := range 2 {
		at := [2]string{filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")}
		cert, key := certificate.New(t, "a.test")
		must(t, errors.Join(os.WriteFile(at[0], []byte(cert), 0o600), os.WriteFile(at[1], []byte(key), 0o600)))
		p, err := keypair.New(at[0], at[1], slog.New(slog.DiscardHandler))
		must(t, err)
		first := p.Now()
		must(t, errors.Join(os.Remove(at[i]), syscall.Mkfifo(at[i], 0o600)))
		done := make(chan bool)
		go func() {
			defer close(done)
			if _, now, refused := p.State(); now != first || !errors.Is(refused, file.ErrIrregular) {
				t.Errorf("%s: %v", at[i], refused)
			}
			if _, err := keypair.New(at[0], at[1], slog.New(slog.DiscardHandler)); !errors.Is(err, file.ErrIrregular) {
				t.Errorf("%s: %v", at[i], err)
			}
		}()
		select {
		case <-done:
		case <-time.After(condition.Patience):
			t.Fatal("it waits for the writer of ", at[i])
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
