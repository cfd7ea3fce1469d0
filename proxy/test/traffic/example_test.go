package traffic

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
)

// testExample runs the example of the README.
func testExample(t *testing.T) {
	cmd := exec.Command(forwarder, "127.0.0.1:0", startEcho(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	var log software.Output
	cmd.Stderr = &log
	must(t, cmd.Start())
	end := sync.OnceFunc(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	t.Cleanup(end)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("forward prints %q", line)
	}

	c, err := net.Dial("tcp", addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	echo(t, c.(*net.TCPConn), randomBytes(bulkSize))
	c.Close()
	if !condition.Eventually(func() bool { return strings.Contains(log.String(), " eof\n") }) {
		t.Errorf("forward does not report a session that ended by end of file:\n%s", log.String())
	}
	end()
}

const bulkSize = 32 << 20

// startEcho serves connections that get their bytes back.
func startEcho(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, l, sockets.Echo)
	return l.Addr().String()
}

// echo sends b and expects it back.
func echo(t *testing.T, c *net.TCPConn, b []byte) {
	var sending sync.WaitGroup
	sending.Go(func() { c.Write(b) })
	defer sending.Wait()
	sum := sha256.New()
	if _, err := io.CopyN(sum, c, int64(len(b))); err != nil {
		t.Errorf("echo of %d bytes: %v", len(b), err)
		return
	}
	if want := sha256.Sum256(b); !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("echo of %d bytes came back changed", len(b))
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}
