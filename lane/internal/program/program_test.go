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

// TestEffortOfVerifier: the kernel follows few instructions to load the programs, for a process waits for that. There were 164,000 of
// the translation while its functions were verified for each of their calls, and all numbers of a SACK option for each of their places.
func TestEffortOfVerifier(t *testing.T) {
	p := load(t, 1)
	for name, one := range map[string]struct {
		program *ebpf.Program
		most    uint32
	}{"ingress": {p.objects.PenstockIngress, 40_000}, "egress": {p.objects.PenstockEgress, 5_000}} {
		info, err := one.program.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, known := info.VerifiedInstructions()
		if !known {
			t.Skip("the kernel does not report it (before Linux 5.16)")
		}
		t.Logf("%s: %d instructions", name, n)
		if n > one.most {
			t.Errorf("%s: the verifier followed %d instructions, want %d at most", name, n, one.most)
		}
	}
}
