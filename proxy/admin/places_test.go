package admin_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/admin"
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
				r.balancer.long = true // so that a status exceeds any buffer
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

// TestLongResponsesAreFew: no more than four responses of the length of a status with many endpoints
// are in memory, and a short one does not wait for them. A refusal does not pass for a short status.
func TestLongResponsesAreFew(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		r.balancer.long = true
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
		r.balancer.long = false
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

// asking is the text of a request of a client of a rank. One of root needs no token.
func asking(rank admission.Rank, request string) string {
	text := request + " HTTP/1.1\r\nHost: localhost\r\nPenstock-Admin: 1\r\n"
	switch rank {
	case admission.Reads:
		text += "Authorization: Bearer " + readToken + "\r\n"
	case admission.Changes:
		text += "Authorization: Bearer " + changeToken + "\r\n"
	}
	return text + "\r\n"
}

// lasting are requests that last, or are left half done, or whose answer nobody reads.
var lasting = map[string]func(rank admission.Rank) string{
	"nothing":        func(admission.Rank) string { return "" },
	"half a request": func(rank admission.Rank) string { return strings.TrimSuffix(asking(rank, "GET /v1/status"), "\r\n") },
	"why":            func(rank admission.Rank) string { return asking(rank, "GET /v1/why?for=1m") },
	"profile":        func(rank admission.Rank) string { return asking(rank, "GET /v1/profile?seconds=60") },
	"events":         func(rank admission.Rank) string { return asking(rank, "GET /v1/events") },
	"unread status":  func(rank admission.Rank) string { return asking(rank, "GET /v1/status") },
	"unread metrics": func(rank admission.Rank) string { return asking(rank, "GET /metrics") },
	"unread list":    func(rank admission.Rank) string { return asking(rank, "GET /v1/sessions") },
	"two at once":    func(rank admission.Rank) string { return strings.Repeat(asking(rank, "GET /livez"), 2) },
	"stuck probes":   func(admission.Rank) string { return asking(admission.Nobody, "GET /livez") },
}

// inSaturation starts a server in a bubble, with that many requests of a rank.
func inSaturation(t *testing.T, by admission.Rank, n int, text string, stuck bool, f func(t *testing.T, r room)) {
	synctest.Test(t, func(t *testing.T) {
		alive := make(chan struct{})
		if !stuck {
			close(alive)
		}
		r := room{newQuietRig(t, func(c *admin.Config) {
			c.Alive = func(ctx context.Context) error {
				select {
				case <-alive:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range 10 {
					_, _ = w.Write(make([]byte, 100_000)) // the client may have gone
				}
			})
		}), make(chan struct{}, 64)}
		r.balancer.waits = true
		if strings.Contains(text, "/v1/status") || strings.Contains(text, "/v1/sessions") {
			r.balancer.long, r.balancer.sessions = true, 2000
		}
		r.SampleNothing()
		for range n {
			c := r.connectAs(t, by, text)
			if strings.Contains(text, "/v1/events") { // one that is not read ends by itself
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
		}
		f(t, r)
	})
}

// TestLesserRight: 100 requests of any kind of a client of lesser right keep no client of greater right out, and no
// probe, by more than the time that a client has when others wait. The same holds for short requests of equal right.
func TestLesserRight(t *testing.T) {
	const free, slow = 60 * time.Millisecond, time.Second
	for name, make := range lasting {
		for by, greater := range map[admission.Rank][]admission.Rank{
			admission.Reads: {admission.Reads, admission.Changes, admission.Own}, admission.Changes: {admission.Changes, admission.Own},
		} {
			t.Run(fmt.Sprint(name, by), func(t *testing.T) {
				t.Parallel()
				inSaturation(t, by, 100, make(by), name == "stuck probes", func(t *testing.T, r room) {
					for _, rank := range greater {
						for request, least := range map[string]time.Duration{
							"GET /readyz": 0, "GET /v1/generations": 0, "GET /v1/status": 0, "GET /metrics": 0,
							"POST /v1/deny/add?source=10.0.0.7&for=1h": 0, "GET /v1/why?for=1s": time.Second, "GET /v1/events": 0, "GET /v1/profile?seconds=1": time.Second,
						} {
							if rank == by && (least > 0 || strings.HasSuffix(request, "events") || strings.HasSuffix(request, "metrics") || strings.HasSuffix(request, "status")) {
								continue // those of equal right share places of these kinds
							}
							code := http.StatusOK
							if rank == admission.Reads && strings.HasPrefix(request, "POST") {
								code = http.StatusForbidden
							}
							took := r.first(t, rank, request, code) - least
							t.Logf("%-45s rank %d: %v", request, rank, took)
							bound := free
							if name != "nothing" && name != "half a request" { // refusals that nobody reads are among them
								bound = slow
							}
							if took > bound {
								t.Errorf("%s of rank %d is answered after %v", request, rank, took)
							}
						}
					}
				})
			})
		}
	}
}

// first returns how long the beginning of the answer to a request of a rank takes.
func (r room) first(t *testing.T, rank admission.Rank, request string, code int) time.Duration {
	t.Helper()
	began := time.Now()
	c := r.connectAs(t, rank, asking(rank, request))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != code {
		t.Errorf("%s of rank %d: %v, %v", request, rank, answer, err)
	}
	took := time.Since(began)
	c.Close()
	synctest.Wait()
	return took
}

// TestDisplaced: a request that loses its place is answered, and says so, and one for which there is no place says when
// to ask again.
func TestDisplaced(t *testing.T) {
	for name, asked := range map[string]func(admission.Rank) string{
		"why": lasting["why"], "profile": lasting["profile"],
	} {
		inSaturation(t, admission.Reads, 0, "", false, func(t *testing.T, r room) {
			bodies := make(chan string, 16)
			most := map[string]int{"why": 16, "profile": 1}[name]
			for range most {
				c := r.connectAs(t, admission.Reads, asked(admission.Reads))
				go func() { b, _ := io.ReadAll(c); bodies <- string(b) }()
			}
			synctest.Wait()
			if took := r.asked(t, asked(admission.Reads), http.StatusServiceUnavailable); took > 0 {
				t.Errorf("%s: one too many of equal right is refused after %v", name, took)
			}
			defer r.connectAs(t, admission.Changes, asked(admission.Changes)).Close()
			got := <-bodies
			if !strings.Contains(got, "503") || !strings.Contains(got, "Retry-After: 1") || !strings.Contains(got, "a later request displaced") {
				t.Errorf("%s: it ends with %q", name, got)
			}
		})
	}
}
