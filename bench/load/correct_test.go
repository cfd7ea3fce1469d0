package load_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/load"
)

// failedChecks runs Correct and returns the messages of the checks that failed.
func failedChecks(t *testing.T, address string, grace time.Duration) map[string]string {
	t.Helper()
	runner := load.NewRunner()
	runner.Grace = grace
	result, err := runner.Run(t.Context(), load.Plan{Workload: load.Correct, Address: address})
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]string)
	for _, c := range result.Checks {
		if !c.OK {
			said[c.Name] = c.Said
		}
		if c.OK != (c.Said == "") {
			t.Errorf("%+v", c)
		}
	}
	if int64(len(said)) != result.Failed || len(result.Checks) < 15 {
		t.Errorf("%d checks, %d failed, %d say so", len(result.Checks), result.Failed, len(said))
	}
	return said
}

func TestCorrectPassesWhatIsRight(t *testing.T) {
	for name, address := range map[string]string{"direct": sinking(t), "through a proxy": through(t, faithful)} {
		for check, said := range failedChecks(t, address, 0) {
			t.Errorf("%s: %s: %s", name, check, said)
		}
	}
}

// endOnly turns resets into ends of file.
func endOnly(dst, src *net.TCPConn, _ bool) {
	_, _ = io.Copy(dst, src)
	_ = dst.CloseWrite()
	_, _ = io.Copy(io.Discard, src)
}

// closeBoth ends both directions with the first that ends.
func closeBoth(dst, src *net.TCPConn, _ bool) {
	_, _ = io.Copy(dst, src)
	_ = dst.Close()
	_ = src.Close()
}

// changeLate flips a bit in the 300th of the bytes to the server.
func changeLate(dst, src *net.TCPConn, toClient bool) {
	if toClient {
		faithful(dst, src, toClient)
		return
	}
	buf := make([]byte, 32<<10)
	for left := 300; ; {
		n, err := src.Read(buf)
		if left > 0 && left <= n {
			buf[left-1] ^= 1
		}
		left -= n
		_, _ = dst.Write(buf[:n])
		if err != nil {
			_ = dst.CloseWrite()
			return
		}
	}
}

// keepResets does not pass resets on.
func keepResets(dst, src *net.TCPConn, _ bool) {
	if _, err := io.Copy(dst, src); err == nil {
		_ = dst.CloseWrite()
	}
}

func TestCorrectSeesFaults(t *testing.T) {
	for _, test := range []struct {
		name  string
		pass  func(dst, src *net.TCPConn, toClient bool)
		grace time.Duration
		want  map[string]string // in the messages of failed checks
	}{
		{"resets become ends", endOnly, 0, map[string]string{
			"a reset by the client": "the client's reset reached the server as an end of file",
			"a reset by the server": "the server's reset reached the client as an end of file",
		}},
		{"resets are kept", keepResets, 300 * time.Millisecond, map[string]string{
			"a reset by the client": "the client's reset has not reached the server",
			"a reset by the server": "nothing happened",
		}},
		{"no half-close", closeBoth, 300 * time.Millisecond, map[string]string{
			"the client ends first": "after 0 of",
			"the server ends first": "",
		}},
		{"a changed byte to the server", changeLate, 0, map[string]string{
			"65537 bytes each way": "SHA-256", "the client ends first": "SHA-256", "the server ends first": "SHA-256",
		}},
		{"a changed byte to the client", change, 0, map[string]string{
			"4095 bytes each way": "not the content", "the server answers and closes": "not the content",
			"200 connections at once": "not the content",
		}},
		{"the last bytes are lost", loseLast, time.Second, map[string]string{
			"65537 bytes each way": "an end of file came", "the client ends first": "an end of file came",
		}},
		{"all is reset", reset, 500 * time.Millisecond, map[string]string{"4097 bytes each way": "reset"}},
		{"silence", silent, 100 * time.Millisecond, map[string]string{
			"4097 bytes each way": "nothing happened", "a reset by the client": "nothing happened",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			wrong := wronglySaid(failedChecks(t, through(t, test.pass), test.grace), test.want)
			if len(wrong) > 0 {
				// On a busy machine the shorter grace may end before the fault occurs.
				wrong = wronglySaid(failedChecks(t, through(t, test.pass), 10*test.grace), test.want)
			}
			for _, w := range wrong {
				t.Error(w)
			}
		})
	}
}

// wronglySaid returns the expected failures that are missing or have another message.
func wronglySaid(said, want map[string]string) (wrong []string) {
	for check, want := range want {
		if got, failed := said[check]; !failed || !strings.Contains(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s: failed %v, said %q, want %q", check, failed, got, want))
		}
	}
	return wrong
}

func TestCorrectSeesContentsOfAnotherConnection(t *testing.T) {
	var n atomic.Int64
	// Every seventh connection loses a whole segment of its upload.
	address := through(t, func(dst, src *net.TCPConn, toClient bool) {
		if !toClient && n.Add(1)%7 == 0 {
			_, _ = io.CopyN(dst, src, 10_000)
			_, _ = io.CopyN(io.Discard, src, 1448)
		}
		faithful(dst, src, toClient)
	})
	if said := failedChecks(t, address, 0)["200 connections at once"]; !strings.Contains(said, "the server received") {
		t.Errorf("got %q", said)
	}
}
