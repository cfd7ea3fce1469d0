package doctor

import (
	"fmt"

	"github.com/penstock/penstock/internal/sys"
)

// askedBacklog is the largest backlog that listen(2) is asked for.
const askedBacklog = 1 << 16

// enoughBacklog is the default of kernels since Linux 5.4.
const enoughBacklog = 4096

// backlog is how many connections may wait to be accepted.
type backlog struct {
	Somaxconn number `json:"somaxconn,omitzero"`
	Penstock  number `json:"listener_backlog,omitzero"` // of a listener that asks for none
	Largest   number `json:"largest_backlog,omitzero"`  // of one that asks for 65,536

	err error
	place
}

func lookBacklog(p *process) facts {
	f := backlog{Somaxconn: p.parameter("net.core.somaxconn"), place: p.place}
	l, err := listen(either(), nil)
	if err != nil {
		f.err = err
		p.sandbox(err)
		return f
	}
	defer l.Close()
	f.err = inspect(l, func(fd int) error {
		_, n, err := sys.ListenQueue(fd)
		if err != nil {
			return err
		}
		f.Penstock = known(n)
		if err := sys.Listen(fd, askedBacklog); err != nil {
			return err
		}
		if _, n, err = sys.ListenQueue(fd); err == nil {
			f.Largest = known(n)
		}
		return err
	})
	return f
}

func (f backlog) judge() finding {
	if !f.Penstock.known {
		return finding{state: Unknown, found: "no listener to ask: " + cause(f.err), cost: "see loopback"}
	}
	found := fmt.Sprintf("%s connections may wait to be accepted (somaxconn %s)", f.Penstock, f.Somaxconn)
	if f.Penstock.value >= enoughBacklog {
		return finding{state: OK, found: found}
	}
	return finding{
		state: Degraded, found: found,
		cost: fmt.Sprintf("of a burst of more than %s clients the others try again after 1 s or more", f.Penstock),
		mend: f.mend(),
	}
}

// mend says how to get a longer backlog: by a larger limit, and by letting the
// listener read it, which otherwise asks for 128 (package net).
func (f backlog) mend() []string {
	read := f.letRead("/proc/sys/net/core/somaxconn")
	if f.Largest.value >= enoughBacklog {
		return []string{read}
	}
	mend := f.netSysctl(setting{"net.core.somaxconn", fmt.Sprint(enoughBacklog)})
	if !f.Somaxconn.known {
		for i := range mend {
			mend[i] += "; besides, " + read
		}
	}
	return mend
}

// synBacklog is how many connections may be in the middle of their handshake.
type synBacklog struct {
	Max     number `json:"tcp_max_syn_backlog,omitzero"`
	Cookies number `json:"tcp_syncookies,omitzero"` // 0: never

	place
}

func lookSynBacklog(p *process) facts {
	return synBacklog{
		Max: p.parameter("net.ipv4.tcp_max_syn_backlog"), Cookies: p.parameter("net.ipv4.tcp_syncookies"),
		place: p.place,
	}
}

func (f synBacklog) judge() finding {
	cost := "handshakes beyond it are dropped: the client tries again after 1 s or more"
	switch {
	case !f.Max.known:
		return finding{state: Unknown, found: "tcp_max_syn_backlog cannot be read", cost: cost}
	case f.Cookies.known && f.Cookies.value > 0:
		return finding{state: OK, found: fmt.Sprintf("%s handshakes at once, and SYN cookies beyond", f.Max)}
	case f.Max.value >= 1024:
		return finding{state: OK, found: fmt.Sprintf("%s handshakes at once, no SYN cookies beyond", f.Max)}
	}
	return finding{
		state: Degraded, found: fmt.Sprintf("%s handshakes at once, and no SYN cookies", f.Max), cost: cost,
		mend: f.netSysctl(setting{"net.ipv4.tcp_syncookies", "1"}),
	}
}
