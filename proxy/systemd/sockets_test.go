package systemd_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/systemd"
)

// A report has the child's findings.
type report struct {
	Names, Unused, Taken []string
	Missing, Datagram    string
	NoSocket             bool
	Environment          []string // systemd's variables, afterwards
	Inherited            string   // the number of sockets that a child of the child has
}

// service is the child: it reports, then greets on all sockets named "web" until its standard
// input ends.
func service() {
	r := report{}
	sockets := systemd.Receive()
	r.Names = sockets.Names()
	web, err := sockets.Take("web")
	if err == nil {
		web, err = again(sockets, web)
	}
	for _, l := range web {
		r.Taken = append(r.Taken, l.Addr().String())
		go greet(l)
	}
	_, missing := sockets.Take("nobody")
	r.Missing, r.NoSocket = text(missing), errors.Is(missing, systemd.ErrNoSocket)
	_, datagram := sockets.Take("log")
	r.Datagram = text(errors.Join(err, datagram))
	r.Unused = sockets.Unused()
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "LISTEN_") {
			r.Environment = append(r.Environment, v)
		}
	}
	out, _ := exec.Command("sh", "-c", "ls -l /proc/self/fd | grep -c socket: || true").CombinedOutput()
	r.Inherited = strings.TrimSpace(string(out))
	_ = json.NewEncoder(os.Stdout).Encode(r)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = sockets.Close()
}

// again closes listeners and takes them once more, as a reload may.
func again(sockets *systemd.Sockets, web []net.Listener) ([]net.Listener, error) {
	for _, l := range web {
		l.Close()
	}
	return sockets.Take("web")
}

func greet(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "hello\n")
		c.Close()
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// activated starts the child as systemd would: with descriptors from 3 on, and with LISTEN_PID
// set to its own process id.
func activated(t *testing.T, files []*os.File, fdnames, pid string) (r report) {
	t.Helper()
	script := `LISTEN_PID=` + pid + ` exec "$0"`
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command("sh", "-c", script, exe)
	cmd.Env = append(os.Environ(), asService+"=1", "LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+fdnames)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must(t, err, json.Unmarshal(line, &r))
	return r
}

// passed returns two listeners named web, a third of another name, and a socket that does not
// listen.
func passed(t *testing.T) (files []*os.File, addresses []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	for _, l := range []struct{ network, address string }{{"tcp", "127.0.0.1:0"}, {"unix", path}, {"tcp", "127.0.0.1:0"}} {
		listener, err := net.Listen(l.network, l.address)
		must(t, err)
		if u, ok := listener.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		addresses = append(addresses, listener.Addr().String())
		f, err := listener.(interface{ File() (*os.File, error) }).File()
		must(t, err, listener.Close())
		files = append(files, f)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	f, err := packets.(*net.UDPConn).File()
	must(t, err, packets.Close())
	files = append(files, f)
	t.Cleanup(func() {
		for _, f := range files {
			f.Close()
		}
	})
	return files, addresses
}

func TestSocketActivation(t *testing.T) {
	files, addresses := passed(t)
	r := activated(t, files, "web:web:admin:log", "$$")
	want := report{
		Names: []string{"admin", "log", "web"}, Unused: []string{"admin", "log"}, Taken: addresses[:2],
		Inherited: "0", NoSocket: true,
	}
	if !slices.Equal(r.Names, want.Names) || !slices.Equal(r.Unused, want.Unused) || !slices.Equal(r.Taken, want.Taken) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	if !r.NoSocket || !strings.Contains(r.Missing, "systemd:nobody: ") || !strings.HasSuffix(r.Missing, "write one of admin, log, web, or set FileDescriptorName= in the socket unit") {
		t.Errorf("a name that was not passed: %q", r.Missing)
	}
	if !strings.Contains(r.Datagram, "systemd:log: descriptor 6 is no stream socket") {
		t.Errorf("a socket for datagrams: %q", r.Datagram)
	}
	if r.Environment != nil || r.Inherited != "0" {
		t.Errorf("children get %v and %s sockets", r.Environment, r.Inherited)
	}
	for i, network := range []string{"tcp", "unix"} {
		c, err := net.Dial(network, addresses[i])
		must(t, err)
		got, err := io.ReadAll(c)
		if string(got) != "hello\n" || err != nil {
			t.Errorf("%s: %q, %v", network, got, err)
		}
		c.Close()
	}
}

func TestSocketsOfAnotherProcess(t *testing.T) {
	files, _ := passed(t)
	r := activated(t, files, "web:web:admin:log", "1")
	if r.Names != nil || r.Taken != nil || r.Environment != nil || !strings.Contains(r.Missing, "none was") {
		t.Errorf("got %+v", r)
	}
}

func TestSocketsWithoutNames(t *testing.T) {
	files, _ := passed(t)
	r := activated(t, files[:2], "", "$$")
	if want := []string{"LISTEN_FD_3", "LISTEN_FD_4"}; !slices.Equal(r.Names, want) {
		t.Errorf("names %v, want %v", r.Names, want)
	}
}
