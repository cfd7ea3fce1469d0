// Package lossy makes a network device lose, duplicate and reorder packets, by a BPF program that runs before
// all others. It works on kernels without netem. It is for tests and measurements.
package lossy

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang -target bpfel -cflags "-O2 -Wall -Wextra -Wno-unused-parameter -mcpu=v3" lossy bpf/lossy.c

// A Rate says how many of 10,000 arriving packets are lost, duplicated and delayed.
type Rate struct {
	Lose, Twice, Late uint32
	// SpareResets spares segments with RST: no sender repeats an RST, so an endpoint may never learn of a lost
	// reset.
	SpareResets bool
}

// A Counts says how many packets were lost, duplicated and delayed.
type Counts struct{ Lost, Doubled, Delayed uint64 }

// A Link is a device that is lossy until Close, or until the process ends.
type Link struct {
	objects lossyObjects
	link    link.Link // owned
}

// Attach makes a device lossy, by its index in this network namespace. It needs CAP_BPF and CAP_NET_ADMIN.
func Attach(device int, r Rate) (*Link, error) {
	spec, err := loadLossy()
	if err != nil {
		return nil, err
	}
	for name, v := range map[string]any{"lose": r.Lose, "twice": r.Twice, "late": r.Late, "spare_resets": r.SpareResets} {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("lossy: %s: %w", name, err)
		}
	}
	l := new(Link)
	if err := spec.LoadAndAssign(&l.objects, nil); err != nil {
		return nil, fmt.Errorf("lossy: %w", err)
	}
	l.link, err = link.AttachTCX(link.TCXOptions{Interface: device, Program: l.objects.PenstockLossy, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lossy: %w", err), l.objects.Close())
	}
	return l, nil
}

// Counts returns the counts.
func (l *Link) Counts() (c Counts, err error) {
	return c, errors.Join(l.objects.Lost.Get(&c.Lost), l.objects.Doubled.Get(&c.Doubled), l.objects.Delayed.Get(&c.Delayed))
}

// Close detaches the program, so that the device is no longer lossy.
func (l *Link) Close() error { return errors.Join(l.link.Close(), l.objects.Close()) }
