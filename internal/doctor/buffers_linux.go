package doctor

import "fmt"

// buffers is how much the kernel keeps of a connection's bytes.
type buffers struct {
	ReceiveMax number `json:"tcp_rmem_max,omitzero"`
	SendMax    number `json:"tcp_wmem_max,omitzero"`

	receive, send []int64 // lowest, default, highest
	place
}

func lookBuffers(p *process) facts {
	f := buffers{
		place:   p.place,
		receive: p.numbers("proc/sys/net/ipv4/tcp_rmem"),
		send:    p.numbers("proc/sys/net/ipv4/tcp_wmem"),
	}
	if len(f.receive) == 3 {
		f.ReceiveMax = known(f.receive[2])
	}
	if len(f.send) == 3 {
		f.SendMax = known(f.send[2])
	}
	return f
}

func (f buffers) judge() finding {
	if !f.ReceiveMax.known || !f.SendMax.known {
		return finding{state: Unknown, found: "tcp_rmem and tcp_wmem cannot be read", cost: "a large pipe is never full if they are small"}
	}
	found := fmt.Sprintf("%s to receive, %s to send at most", size(f.ReceiveMax.value), size(f.SendMax.value))
	// Half of a receive buffer is bytes, the rest is the kernel's overhead
	// (net.ipv4.tcp_adv_win_scale).
	receive, send := f.ReceiveMax.value >= 2*largePipe, f.SendMax.value >= 2*largePipe
	if receive && send {
		return finding{state: OK, found: found}
	}
	var larger []setting
	if !receive {
		larger = append(larger, setting{"net.ipv4.tcp_rmem", fmt.Sprintf("%d %d %d", f.receive[0], f.receive[1], 6<<20)})
	}
	if !send {
		larger = append(larger, setting{"net.ipv4.tcp_wmem", fmt.Sprintf("%d %d %d", f.send[0], f.send[1], 4<<20)})
	}
	return finding{
		state: Degraded, found: found,
		cost: fmt.Sprintf("one fill of a 1 MiB pipe finds %s at most; 64 KiB at a time take 0.86 of copying's time, 128 KiB 0.56, 256 KiB 0.41",
			size(min(f.ReceiveMax.value, f.SendMax.value)/2)),
		mend: f.netSysctl(larger...),
	}
}
