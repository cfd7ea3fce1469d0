package load_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/load"
)

func TestServeCarriesOutPlansAndTells(t *testing.T) {
	address := through(t, faithful)
	in, plan := io.Pipe()
	event, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- load.Serve(t.Context(), in, out) }()

	plans, events := json.NewEncoder(plan), json.NewDecoder(event)
	for _, p := range []load.Plan{
		{Workload: load.Bulk, Address: address, Connections: 1, Duration: 250 * time.Millisecond},
		{Workload: load.Echo, Address: address, Connections: 1, Size: 1, Duration: 250 * time.Millisecond},
	} {
		if err := plans.Encode(p); err != nil {
			t.Fatal(err)
		}
		var e load.Event
		if err := events.Decode(&e); err != nil || e.Error != "" || e.Result == nil || e.Result.Received == 0 {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	_ = plan.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServeHoldsAnIdlePlanUntilItsRelease(t *testing.T) {
	address := through(t, faithful)
	in, plan := io.Pipe()
	event, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- load.Serve(t.Context(), in, out) }()
	plans, events := json.NewEncoder(plan), json.NewDecoder(event)
	// A release without held connections does nothing.
	for _, p := range []load.Plan{{Release: true}, idlePlan(address)} {
		if err := plans.Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	next := func() (e load.Event) {
		if err := events.Decode(&e); err != nil || e.Error != "" {
			t.Fatal(err, e.Error)
		}
		return e
	}
	e := next()
	for !e.Holding {
		e = next()
	}
	if err := plans.Encode(load.Plan{Release: true}); err != nil {
		t.Fatal(err)
	}
	if e = next(); e.Result == nil || e.Result.Connections != 150 {
		t.Errorf("after the release: %+v", e)
	}
	_ = plan.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServeTellsWhatWentWrong(t *testing.T) {
	var out bytes.Buffer
	in, plan := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- load.Serve(t.Context(), in, &out) }()
	_ = json.NewEncoder(plan).Encode(load.Plan{Workload: "chat"})
	// Two plans: the first one's event has been sent when the second is read.
	_ = json.NewEncoder(plan).Encode(load.Plan{Workload: "talk"})
	_ = plan.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var e load.Event
	if err := json.NewDecoder(&out).Decode(&e); err != nil || !strings.Contains(e.Error, "chat") {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestServeBreaksOffWhenItsInputEnds(t *testing.T) {
	address, in := through(t, faithful), new(bytes.Buffer)
	_ = json.NewEncoder(in).Encode(load.Plan{Workload: load.Bulk, Address: address, Connections: 2, Duration: time.Hour})
	if err := load.Serve(t.Context(), in, io.Discard); err != nil {
		t.Error(err)
	}
}

func TestServeRefusesWhatIsNoPlan(t *testing.T) {
	if err := load.Serve(t.Context(), strings.NewReader("go!\n"), io.Discard); err == nil {
		t.Error("no error")
	}
}
