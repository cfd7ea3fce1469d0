package netns_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/netns"
)

func TestMain(m *testing.M) {
	netns.Main()
	leak.Main(m)
}

// dial connects to b and reads its greeting.
func dial(t *testing.T, b *netns.Backend) (net.Conn, string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", b.Addr.String(), condition.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(condition.Patience)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return c, strings.TrimSpace(line)
}

// says sends a word and reads the same.
func says(c net.Conn, word string) error {
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	back := make([]byte, len(word))
	_, err := io.ReadFull(c, back)
	if err == nil && string(back) != word {
		err = errors.New("another word: " + string(back))
	}
	return err
}

// attempt is what becomes of connecting within a moment.
func attempt(at netip.AddrPort) error {
	c, err := net.DialTimeout("tcp", at.String(), 200*time.Millisecond)
	if err == nil {
		c.Close()
	}
	return err
}

func silent(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &timeout) && timeout.Timeout())
}

// two hosts with a backend at the far one, and a link between them.
func two(t *testing.T) (here, there *netns.Host, link netns.Link, b *netns.Backend) {
	here, there = netns.Here(t), netns.New(t)
	link = here.Join(there)
	return here, there, link, there.Backend("one", netns.Echo, netip.AddrPortFrom(link.Far, 0))
}

func TestSilence(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	_, there, link, b := two(t)
	c, _ := dial(t, b)
	for _, way := range []struct{ begin, end func() }{
		{func() { there.Silence(link.Near) }, func() { there.RemoveRoute(link.Near) }},
		{func() { there.Cut(link) }, func() { there.Mend(link) }},
	} {
		way.begin()
		if err := attempt(b.Addr); !silent(err) {
			t.Errorf("got %v, want a timeout", err)
		}
		way.end()
		if err := says(c, "again"); err != nil {
			t.Error(err)
		}
	}
}

func TestBackends(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	_, there, link, b := two(t)
	c, _ := dial(t, b)
	b.Freeze()
	if err := attempt(b.Addr); err != nil { // the kernel accepts for it
		t.Error(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := says(c, "frozen"); !silent(err) {
		t.Errorf("got %v, want a timeout", err)
	}
	b.Thaw()
	if err := c.SetReadDeadline(time.Now().Add(condition.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len("frozen"))); err != nil {
		t.Error(err)
	}
	b.Kill()
	if _, err := c.Read(make([]byte, 1)); err == nil || silent(err) {
		t.Errorf("a connection of a killed backend: %v", err)
	}
	if err := attempt(b.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a killed backend: %v", err)
	}

	resetting := there.Backend("r", netns.Reset, netip.AddrPortFrom(link.Far, 0))
	c, err := net.DialTimeout("tcp", resetting.Addr.String(), condition.Patience)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a backend that resets: %v", err)
	}
	mute := there.Backend("s", netns.Silent, netip.AddrPortFrom(link.Far, 0))
	if c, err = net.DialTimeout("tcp", mute.Addr.String(), condition.Patience); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if err := says(c, "anybody?"); !silent(err) {
		t.Errorf("a silent backend: %v", err)
	}
}
