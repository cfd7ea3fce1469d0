package program

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// load loads the programs, and skips the test in a process that may not. Root may, or the test fails.
func load(t testing.TB, sessions uint32) *Program {
	t.Helper()
	p, err := Load(sessions, "")
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		t.Skip("an ordinary user may not load BPF programs:", err)
	}
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		t.Fatalf("%+v", refused)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestLoad(t *testing.T) {
	p := load(t, 64)
	for slot := range p.Size() {
		if s := p.Session(slot); s.State() != 0 {
			t.Errorf("slot %d: %v", slot, s.State())
		}
	}
}
