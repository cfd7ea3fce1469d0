package pipequota_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func TestMain(m *testing.M) { leak.Main(m) }

const size = 1 << 20

// TestShareWaitsForPipes that processes hold which are no tests.
func TestShareWaitsForPipes(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	held := spend(t)
	given := make(chan struct{}, 1)
	go func() {
		time.Sleep(20 * time.Millisecond) // so that it has to wait
		given <- struct{}{}
		held[0]()
	}()
	pipequota.Share(t)
	select {
	case <-given:
	default:
		t.Error("it has not waited")
	}
}

// TestTestsWaitForEachOther, in processes of their own.
func TestTestsWaitForEachOther(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	for _, c := range []struct {
		first, then string
		waits       bool
	}{{"share", "share", false}, {"share", "spend", true}, {"spend", "share", true}, {"spend", "spend", true}} {
		first, ends := other(t, c.first)
		<-first
		then, thenEnds := other(t, c.then)
		if !c.waits {
			<-then
		} else {
			select {
			case <-then:
				t.Errorf("%s does not wait for %s", c.then, c.first)
			case <-time.After(50 * time.Millisecond):
			}
		}
		ends()
		<-then
		thenEnds()
	}
}

// TestChildrenDoNotWait for the process that has started them, even if somebody else waits
// for it already.
func TestChildrenDoNotWait(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	spender, end := other(t, "spend")
	<-spender
	end()
	pipequota.Share(t)
	child, end := other(t, "share")
	<-child
	end()
}

// other starts a process of the user that shares the quota, or spends it. It is closed when
// the process does.
func other(t *testing.T, how string) (does <-chan struct{}, end func()) {
	t.Helper()
	cmd := exec.Command(privilege.Self, "-test.run=^TestOther$")
	cmd.Env = append(os.Environ(), "PIPEQUOTA="+how)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		if line, err := bufio.NewReader(out).ReadString('\n'); line != how+"\n" {
			t.Errorf("the other process said %q, %v", line, err)
		}
	}()
	return done, func() { in.Close(); cmd.Wait() }
}

// TestOther is the other process.
func TestOther(t *testing.T) {
	how := os.Getenv("PIPEQUOTA")
	switch how {
	case "share":
		pipequota.Share(t)
		pipequota.Share(t) // as often as it likes
	case "spend":
		pipequota.Spend(t)
		pipequota.Spend(t)
	default:
		return // not started by other
	}
	os.Stdout.WriteString(how + "\n")
	os.Stdin.Read(make([]byte, 1))
}

// spend takes all pipes of that size that the user may have. Each of what it returns gives
// one back.
func spend(t *testing.T) (held []func()) {
	t.Helper()
	for {
		r, w, err := sys.Pipe2(sys.O_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		give := func() { sys.Close(r); sys.Close(w) }
		if _, err := sys.SetPipeSize(w, size); err != nil {
			give()
			return held
		}
		if len(held) == 1000 {
			give()
			t.Skip("no quota binds this user")
		}
		if len(held) > 0 {
			t.Cleanup(give)
		}
		held = append(held, give)
	}
}
