package relay_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay"
)

// TestSpliceRefusedLate: a sandbox that comes over the process while sessions run
// refuses splice (and what else moves bytes in the kernel); every direction goes
// on by copying, and says why.
func TestSpliceRefusedLate(t *testing.T) {
	t.Parallel()

	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS, syscall.EINVAL} {
		t.Run(fmt.Sprintf("errno%d", int(errno)), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) { testSpliceRefusedLate(t, d, errno) })
		})
	}
}

func testSpliceRefusedLate(t *testing.T, d *driving, errno syscall.Errno) {
	pipequota.Share(t)
	pipes, err := pipe.NewPool(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pipes.Close()
	// Before the sandbox comes down the pool finds out that splice is to be had.
	p, err := pipes.Get(0)
	if err != nil {
		t.Fatal(err)
	}
	pipes.Put(p)
	if !privilege.Refused(t, errno, sys.SYS_SPLICE, sys.SYS_SENDFILE) {
		return
	}
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice, Pipes: pipes})
	g := d.newRig(t, r, tcp, tcp)
	g.exchange(content(1, 300_000), content(2, 200_000), 50_000)
	res := g.checkClean(300_000, 200_000)
	for _, f := range []relay.Flow{res.AToB, res.BToA} {
		if f.Spliced != 0 || f.Fallbacks[relay.FallbackRefused] != 1 {
			t.Fatalf("%v: %+v, want all copied and one refusal", errno, f)
		}
	}
	copyThrough(t, r, copyEnds[3], copyEnds[0], 1<<20, relay.EngineCopy) // file to tcp
}

// TestSpliceRefusedEarly: in a sandbox that refuses splice from the start, a relay
// copies, and says that there is no splice.
func TestSpliceRefusedEarly(t *testing.T) {
	t.Parallel()
	eachDriver(t, testSpliceRefusedEarly)
}

func testSpliceRefusedEarly(t *testing.T, d *driving) {
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_SPLICE) {
		return
	}
	r := newRelay(t, nil)
	g := d.newRig(t, r, tcp, tcp)
	g.exchange(content(1, 300_000), nil, 50_000)
	res := g.checkClean(300_000, 0)
	if f := res.AToB; f.Spliced != 0 || f.Fallbacks[relay.FallbackUnsupported] != 1 {
		t.Fatalf("%+v, want all copied, splice unsupported", f)
	}
}
