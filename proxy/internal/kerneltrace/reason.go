package kerneltrace

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// reasons are the names of the kernel's enumerations, as it has them; a nil map has none.
type reasons struct {
	drop, reset map[uint64]string
}

// congestion are the states of enum tcp_ca_state in include/uapi/linux/tcp.h, as causes of a
// retransmission.
var congestion = []string{"probe", "disorder", "cwr", "recovery", "timeout"}

// limits are the kinds of sock_exceed_buf_limit: SK_MEM_SEND and SK_MEM_RECV of include/net/sock.h.
var limits = []string{"send", "receive"}

// loadReasons reads the names. A kernel that lacks an enumeration has numbers instead of names.
func loadReasons() (r reasons) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return r
	}
	r.drop = enumNames(spec, "skb_drop_reason", "SKB_DROP_REASON_", "SKB_")
	r.reset = enumNames(spec, "sk_rst_reason", "SK_RST_REASON_")
	return r
}

// enumNames returns the names of an enumeration in lower case, without the first prefix that they
// have.
func enumNames(spec *btf.Spec, name string, prefixes ...string) map[uint64]string {
	var enum *btf.Enum
	if spec.TypeByName(name, &enum) != nil {
		return nil
	}
	names := make(map[uint64]string, len(enum.Values))
	for _, v := range enum.Values {
		text := v.Name
		for _, prefix := range prefixes {
			if short, ok := strings.CutPrefix(text, prefix); ok {
				text = short
				break
			}
		}
		names[v.Value] = strings.ToLower(text)
	}
	return names
}

// dropNumber returns the number of a reason of a drop; 0: the kernel has none of that name.
func (r *reasons) dropNumber(name string) uint32 {
	for n, of := range r.drop {
		if of == name {
			return uint32(n)
		}
	}
	return 0
}

// name returns the name of the detail of an event.
func (r *reasons) name(k Kind, detail uint32) string {
	switch k {
	case Drop:
		return named(r.drop, detail)
	case ResetSent:
		return named(r.reset, detail)
	case Retransmit:
		return listed(congestion, detail)
	case BufferLimit:
		return listed(limits, detail)
	}
	return ""
}

func named(names map[uint64]string, v uint32) string {
	if name, ok := names[uint64(v)]; ok {
		return name
	}
	return fmt.Sprintf("reason %d", v)
}

func listed(names []string, v uint32) string {
	if int64(v) < int64(len(names)) {
		return names[v]
	}
	return fmt.Sprintf("kind %d", v)
}
