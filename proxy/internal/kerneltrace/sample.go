package kerneltrace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"
)

// The programs for the queues of devices are attached for samplePart of each samplePeriod: they see
// every packet of the machine, those of the loopback too, which has no queue.
const (
	samplePart   = 100 * time.Millisecond
	samplePeriod = 500 * time.Millisecond
)

// Wait returns when ctx ends. Meanwhile it attaches and detaches the programs for the queues of
// devices in turn, so that their cost is a fifth. Before and after, they are attached.
func (t *Tracer) Wait(ctx context.Context) error {
	pause := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for pause(samplePart) {
		err := t.detachSampled()
		pause(samplePeriod - samplePart)
		if err = errors.Join(err, t.attachSampled()); err != nil {
			return err
		}
	}
	return nil
}

// detachSampled detaches, the last attached first, and forgets the packets that are in a queue: an
// address that another packet has later must not lead to them.
func (t *Tracer) detachSampled() error {
	var errs []error
	for _, l := range slices.Backward(t.sampledLinks) {
		errs = append(errs, l.Close())
	}
	t.sampledLinks = nil
	var packets []uint64
	errs = append(errs, each(t.maps.Maps["queued"], func(k, _ *uint64) { packets = append(packets, *k) }))
	for _, k := range packets {
		_ = t.maps.Maps["queued"].Delete(k) // it may have left the map
	}
	return errors.Join(errs...)
}

func (t *Tracer) attachSampled() error {
	for _, p := range t.sampled {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("trace: attaching again: %w", err)
		}
		t.sampledLinks = append(t.sampledLinks, l)
	}
	return nil
}
