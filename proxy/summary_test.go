//go:build linux

package proxy_test

import (
	"encoding/json"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/relay"
)

func TestSummaryAsJSON(t *testing.T) {
	text, err := json.Marshal(proxy.Summary{Fallbacks: map[string]int64{"urgent": 7}, Arena: &proxy.Arena{Used: 9}, Loops: []proxy.Loop{{LagP99Us: 8, TimerLateP99Us: 7}}})
	const want = `{"connections":{"accepted":0,"active":0,"refused":0},` +
		`"bytes":{"client_to_endpoint":{"spliced":0,"copied":0},"endpoint_to_client":{"spliced":0,"copied":0}},` +
		`"lost":0,"fallbacks":{"urgent":7},"pipes":{"made":0,"reused":0,"leased":0,"idle":0},` +
		`"pauses":{"gc":0,"gc_max_us":0},"accept_pauses":0,"goroutines":0,` +
		`"engine":{"promotions":0,"demotions":0,"pipe_growths":0,"marks_raised":0,"marks_lowered":0,"turns_cut":0},` +
		`"arena":{"size":0,"used":9,"peak":0,"residues":0,"refused":0},` +
		`"loops":[{"active":0,"accepted":0,"handed_over":0,"turns":0,"blocked":0,"gathers":0,"busy_poll_hits":0,"batches":0,"batch_refused":0,"lag_p99_us":8,"lag_max_us":0,"long_turns":0,"overruns":0,"timer_late_p99_us":7,"timer_late_max_us":0}]}`
	if err != nil || string(text) != want {
		t.Errorf("summary is\n%s, %v, want\n%s", text, err, want)
	}
}

func TestSummaryHasLiveSessions(t *testing.T) { eachDriver(t, testSummaryHasLiveSessions) }

func testSummaryHasLiveSessions(t *testing.T) {
	r := serve(t, proxy.Config{Engine: relay.EngineCopy}, endpoint(t, "127.0.0.1:0", echo))
	conn := r.dial(t)
	exchange(t, conn, "hello")
	// A byte is counted shortly after it was sent, not before it can arrive.
	moved := proxy.Moved{Copied: 5}
	want := proxy.Bytes{ClientToEndpoint: moved, EndpointToClient: moved}
	live := r.Summary()
	for begin := time.Now(); live.Bytes != want && time.Since(begin) < time.Minute; live = r.Summary() {
		time.Sleep(time.Millisecond)
	}
	if live.Connections.Active != 1 || live.Bytes != want {
		t.Errorf("the live summary is %+v", live)
	}
	finish(t, conn)
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	ended := r.Summary()
	if ended.Connections.Active != 0 || ended.Bytes != live.Bytes {
		t.Errorf("the summary after the end is %+v", ended)
	}
}

// Sessions end all the time while summaries are taken: none that moved from the
// live ones to the ended is missed, or counted twice.
func TestSummaryCountsEachSessionOnce(t *testing.T) { eachDriver(t, testSummaryCountsEachSessionOnce) }

func testSummaryCountsEachSessionOnce(t *testing.T) {
	r := serve(t, proxy.Config{Engine: relay.EngineCopy}, endpoint(t, "127.0.0.1:0", echo))
	const clients, turns, size = 4, 50, 1000
	var work sync.WaitGroup
	for range clients {
		work.Go(func() {
			for range turns {
				conn, err := net.Dial("tcp", r.Addresses()[0])
				if err == nil {
					err = roundTrip(conn, string(make([]byte, size)))
				}
				if err != nil {
					t.Error(err)
					return
				}
				conn.Close()
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		work.Wait()
		r.stop()
		<-r.done
		close(ended)
	}()
	var last proxy.Summary
	for more := true; more; {
		select {
		case <-ended:
			more = false
		case <-time.After(100 * time.Microsecond): // a sample
		}
		sum := r.Summary()
		if now, before := sum.Bytes.EndpointToClient.Copied, last.Bytes.EndpointToClient.Copied; now < before || now > clients*turns*size {
			t.Errorf("the summary has %d bytes after %d of %d", now, before, clients*turns*size)
		}
		last = sum
	}
	if got := last.Bytes.EndpointToClient.Copied; got != clients*turns*size {
		t.Errorf("the last summary has %d bytes, want %d", got, clients*turns*size)
	}
	if want := (proxy.Connections{Accepted: clients * turns}); last.Connections != want {
		t.Errorf("connections are %+v, want %+v", last.Connections, want)
	}
}
