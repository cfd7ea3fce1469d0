package keypair_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/proxy/internal/keypair"
)

// TestState: files that cannot be used leave the former certificate in use, and the state says so until they can.
func TestState(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "a.test")
	at := [2]string{filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")}
	write := func(cert, key string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(at[0], []byte(cert), 0o600), os.WriteFile(at[1], []byte(key), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(cert, key)
	p, err := keypair.New(at[0], at[1], slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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

// TestEnded: a certificate that has ended is logged once.
func TestEnded(t *testing.T) {
	t.Parallel()

	var log strings.Builder
	cert, key := certificate.Until(t, time.Now().Add(-time.Hour), "a.test")
	at := [2]string{filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")}
	if err := errors.Join(os.WriteFile(at[0], []byte(cert), 0o600), os.WriteFile(at[1], []byte(key), 0o600)); err != nil {
		t.Fatal(err)
	}
	p, err := keypair.New(at[0], at[1], slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p.Now()
	}
	if n := strings.Count(log.String(), "level=WARN msg=\"a certificate has expired"); n != 1 {
		t.Errorf("it was logged %d times: %s", n, log.String())
	}
}
