package hostile_test

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// fewDescriptors is the process's RLIMIT_NOFILE. Its limit of connections is far above that.
const fewDescriptors = 200

// usable is how many of them clients may take.
var usable = fewDescriptors - sys.KeptDescriptors(fewDescriptors)

// descriptors counts those of the process, from outside: it may have none left for that.
func (s *serving) descriptors() int {
	s.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid))
	must(s.t, err)
	return len(list)
}

// TestNoDescriptors: more clients connect than there are descriptors for, and send nothing. A
// served client is not affected, and new clients wait. The loops do not spin. After the flood all
// is as before.
func TestNoDescriptors(t *testing.T) {
	c := startWithin(t, []string{fmt.Sprint(fewDescriptors)}, fmt.Sprintf(looking, echo(t), "1s"))
	before := c.descriptors()
	session := dial(t, c.at["header"])
	_, err := session.Write(header1)
	must(t, err)
	must(t, exchange(session, []byte("before")))
	hello := helloOf(t, "a.test")
	for round := range 2 {
		began := c.footprint()
		start := time.Now()
		flood := crowd(t, 400, c.at["hello"])
		for i, f := range flood {
			if i%2 == 0 { // these reach an endpoint, and need two descriptors
				_, _ = f.Write(hello)
			}
		}
		must(t, exchange(session, []byte("meanwhile")))
		honest := dial(t, c.at["header"])
		_, err := honest.Write(header1)
		must(t, err)
		must(t, exchange(session, []byte("still")))
		time.Sleep(500 * time.Millisecond) // time for the loops to spin
		now, held := c.footprint(), c.descriptors()
		t.Logf("round %d: %d descriptors, %+v, %d turns in %v", round, held, now, now.Turns-began.Turns, time.Since(start))
		if held < usable-4 || now.Pauses == began.Pauses {
			t.Errorf("%+v: the limit was not reached", now)
		}
		if turns := now.Turns - began.Turns; turns > 20*400 {
			t.Errorf("%d turns for 400 clients", turns)
		}
		closeAll(flood)
		began2 := time.Now()
		must(t, exchange(honest, []byte("at last")))
		t.Logf("the honest client was served %v after that", time.Since(began2))
		honest.Close()
		must(t, exchange(session, []byte("after")))
	}
	condition.Await(t, "all is as before", func() bool { // but for the session; spares, and idle pipes
		return c.footprint().Active == 1 && c.descriptors() <= before+2+30
	})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			c, err := net.Dial("tcp", c.at["hello"])
			if err == nil {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(condition.Patience))
				err = exchange(c, hello)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestDescriptorsAreLeft: clients that stop reading, whose bytes wait in pipes, mirrors, and idle clients leave descriptors for whoever takes
// them off: an administrator, a reload, a check.
func TestDescriptorsAreLeft(t *testing.T) {
	bulk := sockets.Server(t, func(c net.Conn) {
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	c := startWithin(t, []string{fmt.Sprint(fewDescriptors)}, fmt.Sprintf(`
listeners:
  - {name: bulk, bind: "127.0.0.1:0", upstream: bulk}
  - {name: echo, bind: "127.0.0.1:0", upstream: echo, mirror: {upstream: shadow}}
upstreams:
  - {name: bulk, endpoints: [%q], health_check: off}
  - {name: echo, endpoints: [%q], health_check: off}
  - {name: shadow, endpoints: [%q], health_check: off}`, bulk, echo(t), echo(t)))
	crowd(t, 20, c.at["bulk"])
	crowd(t, 200, c.at["echo"])
	condition.Await(t, "accepting pauses again and again", func() bool { return c.footprint().Pauses >= 30 })
	// Each loop may have one client more, and the look itself takes some.
	if n := c.descriptors(); n > usable+12 {
		t.Errorf("%d descriptors are taken, and clients may take %d", n, usable)
	}
}
