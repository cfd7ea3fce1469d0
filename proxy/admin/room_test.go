package admin_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/internal/admission"
)

// A room is a server in a bubble of synctest, whose connections are pipes: nothing is
// written to one that is not being read, and time passes when all wait.
type room struct {
	*rig
	places chan struct{} // the connections that a listener may still accept
}

func inRoom(t *testing.T, f func(t *testing.T, r room)) {
	synctest.Test(t, func(t *testing.T) { f(t, room{newQuietRig(t), make(chan struct{}, 64)}) })
}

// connect returns a client's end after sending text, as far as the server reads it.
func (r room) connect(t *testing.T, text string) net.Conn {
	return r.connectAs(t, admission.Changes, text)
}

// connectAs is connect for a client of a rank: Own is over a unix socket.
func (r room) connectAs(t *testing.T, rank admission.Rank, text string) net.Conn {
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	go func() {
		r.places <- struct{}{}
		r.Serve(server, rank, func() { <-r.places })
	}()
	if text != "" {
		go io.WriteString(client, text)
	}
	synctest.Wait()
	return client
}

// closed reports whether a client's connection was closed. It reads and sends nothing.
func closed(c net.Conn) bool {
	_ = c.SetWriteDeadline(time.Now().Add(time.Nanosecond))
	_, err := c.Write(nil)
	return err == io.ErrClosedPipe
}

const (
	asks     = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + changeToken + "\r\n\r\n"
	marks    = "POST /v1/reload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + changeToken + "\r\nPenstock-Admin: 1\r\n"
	announce = marks + "Content-Length: 100\r\n\r\n"
)

// asked sends a new client's request, checks the answer, and returns how long it took.
func (r room) asked(t *testing.T, text string, code int) time.Duration {
	t.Helper()
	began := time.Now()
	c := r.connect(t, text)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != code {
		t.Errorf("answered with %v, %v", answer, err)
		return time.Since(began)
	}
	if _, err := io.ReadAll(answer.Body); err != nil || !answer.Close {
		t.Errorf("the answer ends with %v, and the connection with it: %v", err, answer.Close)
	}
	return time.Since(began)
}

// TestNobodyHoldsUpOthers: all places but the last may be filled with any clients that the
// server waits for. Others are answered within the grace time of each of those.
func TestNobodyHoldsUpOthers(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                             "",
		"half a request":                      "GET /v1/status HTTP/1.1\r\nHost: local",
		"an answer that is not read":          asks,
		"many that are not":                   strings.Repeat(asks, 400),
		"a refusal that is not read":          "GET /nothing HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + changeToken + "\r\n\r\n",
		"a bad request":                       "GET\r\n\r\n",
		"too much of a header":                "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
		"a body that does not come":           announce,
		"one that is as large as it can be":   marks + "Content-Length: 9999999\r\n\r\n",
		"one in chunks":                       marks + "Transfer-Encoding: chunked\r\n\r\n",
		"one that is to be continued":         marks + "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
		"one beside a request that is a read": "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + changeToken + "\r\nContent-Length: 100\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, func(t *testing.T, r room) {
				r.balancer.more = 1000 // so that a status exceeds any buffer
				for range 63 {
					r.connect(t, text)
				}
				for range 3 {
					bound := 250 * time.Millisecond
					switch text {
					case "":
						bound = 5 * time.Millisecond
					case asks, strings.Repeat(asks, 400): // long responses
						bound = 40 / 4 * 250 * time.Millisecond // of 40 requests four at a time
					}
					if took := r.asked(t, asks, http.StatusOK); took > bound {
						t.Errorf("another client is answered after %v", took)
					}
					r.connect(t, text)
				}
			})
		})
	}
}

// TestSilentConnectionsAreManagedFast: hundreds that send nothing, or a part of a request, delay a client by
// milliseconds, since one has a short time for its request when others wait.
func TestSilentConnectionsAreManagedFast(t *testing.T) {
	for _, text := range []string{"", "G", "GET /v1/status HTTP/1.1\r\nHost: loc"} {
		inRoom(t, func(t *testing.T, r room) {
			for range 1240 {
				r.connect(t, text)
			}
			if took := r.asked(t, asks, http.StatusOK); took > 21*5*time.Millisecond {
				t.Errorf("%q: a client is answered after %v", text, took)
			}
		})
	}
}

// TestLongResponsesAreFew: no more than four responses of the length of a status with many endpoints
// are in memory, and a short one does not wait for them. A refusal does not pass for a short status.
func TestLongResponsesAreFew(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		r.balancer.more = 3000
		r.asked(t, asks, http.StatusOK)
		r.asked(t, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", http.StatusUnauthorized)
		if !r.ExpectsLong() {
			t.Error("the refusal passes for a short status")
		}
		for range 20 {
			r.connect(t, asks) // read by nobody
		}
		if n := r.Conns().Held(admission.Answer); n != 4 {
			t.Errorf("%d long responses at once", n)
		}
		if took := r.asked(t, "GET /nothing HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+changeToken+"\r\n\r\n", http.StatusNotFound); took > 0 {
			t.Errorf("another request is answered after %v", took)
		}
		r.balancer.more = 0
		if took := r.asked(t, asks, http.StatusOK); took > 2*time.Second {
			t.Errorf("a client is answered after %v", took)
		}
		if took := r.asked(t, asks, http.StatusOK); took > 0 {
			t.Errorf("when responses are short, a client is answered after %v", took)
		}
	})
}

// TestBodiesAreRefusedAtOnce: the answer is sent without waiting for a body.
func TestBodiesAreRefusedAtOnce(t *testing.T) {
	for _, text := range []string{announce, marks + "Transfer-Encoding: chunked\r\n\r\n", marks + "Expect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"} {
		inRoom(t, func(t *testing.T, r room) {
			began := time.Now()
			c := r.connect(t, text)
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if took := time.Since(began); err != nil || answer.StatusCode != http.StatusBadRequest || took > 0 {
				t.Errorf("%q: %v, %v after %v", text, answer, err, took)
			}
			time.Sleep(time.Second)
			if !closed(c) {
				t.Errorf("%q: after a second the server still waits for the body", text)
			}
			if n := r.reloader.Status().Current; n != 1 {
				t.Errorf("there is generation %d", n)
			}
		})
	}
}

// TestClientsHaveTheirTime: the server waits for a client for some seconds at most, even if
// there is room for others.
func TestClientsHaveTheirTime(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		for text, most := range map[string]time.Duration{
			"": 5 * time.Second, asks: 10 * time.Second, asks + asks: 10 * time.Second, "GET /st": 15 * time.Second,
			"GET\r\n\r\n": 10 * time.Second, announce: 11 * time.Second,
		} {
			c := r.connect(t, text)
			time.Sleep(most - time.Second - time.Millisecond)
			if closed(c) && text != announce {
				t.Errorf("%q: closed more than a second before its time", text)
			}
			time.Sleep(time.Second + 2*time.Millisecond)
			if !closed(c) {
				t.Errorf("%q: still there after %v", text, most)
			}
		}
	})
}

// TestLongAnswersAreMade: a response that takes the server long is not the client's doing, and
// may take more time than a client has.
func TestLongAnswersAreMade(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		r.reloader.apply = func() { time.Sleep(time.Minute) }
		if took := r.asked(t, marks+"\r\n", http.StatusOK); took != time.Minute {
			t.Errorf("the answer took %v", took)
		}
	})
}

// TestLongestWaitLeaves: the connection that waits longest for its client is closed. It is not
// one within its grace time, nor one with a request being performed.
func TestLongestWaitLeaves(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		on := make(chan struct{})
		r.reloader.apply = func() { <-on }
		busy := r.connect(t, marks+"\r\n")
		var slow []net.Conn
		for i := range 62 {
			slow = append(slow, r.connect(t, []string{"", asks, "GET /st"}[i%3]))
			time.Sleep(10 * time.Millisecond)
		}
		if took := r.asked(t, asks, http.StatusOK); took > 0 {
			t.Errorf("another client is answered after %v", took)
		}
		time.Sleep(time.Millisecond) // the connection closes after its answer
		if !closed(slow[0]) || closed(slow[1]) {
			t.Errorf("closed: the first %v, the second %v", closed(slow[0]), closed(slow[1]))
		}
		close(on)
		if answer, err := http.ReadResponse(bufio.NewReader(busy), nil); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("a connection being answered: %v, %v", answer, err)
		}
	})
}
