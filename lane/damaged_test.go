package lane_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/internal/program"
	"github.com/penstock/penstock/lane/internal/state"
)

// member returns where a member of a record is.
func member(t *testing.T, name string) uintptr {
	t.Helper()
	f, ok := reflect.TypeFor[program.Session]().FieldByName(name)
	if !ok {
		t.Fatal("a record has no", name)
	}
	return f.Offset
}

// echoing is a server that waits for no connection when the test ends: those of a session that was not adopted may stay until they
// send something.
func echoing(t *testing.T) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { at.Close() })
	go func() {
		for {
			c, err := at.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go io.Copy(c, c)
		}
	}()
	return at.Addr().String()
}

// rewritten has a function change the pinned record of each slot that has a session in the lane.
func rewritten(t *testing.T, dir string, change func(record []byte)) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "sessions"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for slot := range m.MaxEntries() {
		var b []byte
		if err := m.Lookup(slot, &b); err != nil {
			t.Fatal(err)
		}
		if b[0] != byte(state.Lane) {
			continue
		}
		change(b)
		if err := m.Put(slot, b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedRecord: a record with an impossible side among its observations is adopted, without these; one with impossible scales is
// not adopted, and its connections end.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	half := member(t, "Half")
	scale, _ := reflect.TypeFor[program.Session]().FieldByName("Half")
	of, _ := scale.Type.Elem().FieldByName("Scale")
	for name, c := range map[string]struct {
		at      []uintptr
		adopted int
	}{
		"observations": {[]uintptr{member(t, "Spoke"), member(t, "Stalled"), member(t, "EndedBy"), member(t, "Newest")}, 1},
		"scale":        {[]uintptr{half + of.Offset}, 0},
		"state":        {[]uintptr{member(t, "Word")}, 0},
		"reported":     {[]uintptr{member(t, "Reported")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filesystem(t)
			p := startProxy(t, echoing(t), dir)
			client := p.talkers(t, 1)[0]
			p.kill()
			rewritten(t, dir, func(b []byte) {
				for _, at := range c.at {
					b[at] = 200
				}
			})
			l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
			if err != nil {
				t.Fatal(err)
			}
			if st := l.Stats(); st.Adopted != uint64(c.adopted) || st.Failed != uint64(1-c.adopted) {
				t.Errorf("%+v", st)
			}
			renewed([]*net.TCPConn{client})
			for _, s := range l.Sessions() {
				echo(t, client, "it goes on")
				if v, ok := s.Look(); !ok || v.EndedBy != -1 || s.Idle() < 0 {
					t.Errorf("%+v, %v, idle %v", v, ok, s.Idle())
				}
			}
			if c.adopted == 0 {
				_, err := client.Write([]byte("is anyone there?"))
				if err == nil {
					_, err = client.Read(make([]byte, 1))
				}
				if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Errorf("%v, want a reset", err)
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDamagedTable: a table of random records is opened, read and closed.
func TestDamagedTable(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	for seed := range uint64(8) {
		damage(t, dir, rand.New(rand.NewPCG(seed, 7)), seed%2 == 0)
		l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Linger: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Sessions() {
			s.Look()
			s.Addresses()
			s.Tag()
			if s.Idle() < 0 || s.Age() < 0 {
				t.Errorf("idle %v, age %v", s.Idle(), s.Age())
			}
			s.Bytes()
		}
		p := joined(t, l, "tcp", "127.0.0.1:0")
		p.talk(t)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// damage leaves a pinned table of random records.
func damage(t *testing.T, dir string, rnd *rand.Rand, states bool) {
	t.Helper()
	crashed(t, dir, "lo")
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "sessions"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := make([]byte, m.ValueSize())
	for slot := range uint32(31) { // one is free, for a session of the test
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		if states {
			clear(b[:8])
			b[0] = byte(rnd.IntN(9))
		}
		if err := m.Put(slot, b); err != nil {
			t.Fatal(err)
		}
	}
}
