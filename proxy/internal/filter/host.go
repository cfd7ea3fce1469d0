package filter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// Statuses of proxy-wasm.
const (
	statusOK                  = 0
	statusNotFound            = 1
	statusBadArgument         = 2
	statusInvalidMemoryAccess = 6
	statusInternalFailure     = 10
)

// Types of buffers, and of streams.
const (
	bufferDownstreamData = 1
	bufferUpstreamData   = 2
	bufferVMConfig       = 6
	bufferPluginConfig   = 7

	streamDownstream = 2
	streamUpstream   = 3
)

// Levels of proxy_log. proxy_get_log_level returns levelInfo.
const (
	levelInfo = 2
	levelWarn = 3
)

// maxPath limits the path of a property, and maxValue a value that the module sets, in bytes.
const (
	maxPath  = 256
	maxValue = 1 << 10
)

// host returns the functions that a module may import. rewrites is for modules that rewrite streams. Each function
// returns a status.
func host(rewrites bool) wasm.Host {
	f := func(name string, params int, call func(s *instance, p []uint64) uint32) wasm.HostFunction {
		return wasm.HostFunction{Name: name, Params: ints(params), Results: ints(1), Call: func(i *wasm.Instance, stack []uint64) {
			s := i.State.(*instance)
			s.wasm = i // a start function runs before begin has set it
			stack[0] = uint64(call(s, stack))
		}}
	}
	nanoseconds := f("proxy_get_current_time_nanoseconds", 1, func(s *instance, p []uint64) uint32 {
		return s.put64(uint32(p[0]), uint64(time.Now().UnixNano()))
	})
	functions := []wasm.HostFunction{
		nanoseconds,
		f("proxy_log", 3, (*instance).hostLog),
		f("proxy_get_log_level", 1, func(s *instance, p []uint64) uint32 { return s.put32(uint32(p[0]), levelInfo) }),
		f("proxy_get_buffer_bytes", 5, (*instance).hostBuffer),
		f("proxy_get_property", 4, (*instance).hostGet),
		f("proxy_set_property", 4, (*instance).hostSet),
		f("proxy_close_stream", 1, (*instance).hostClose),
		f("proxy_set_effective_context", 1, func(*instance, []uint64) uint32 { return statusOK }),
	}
	if rewrites {
		functions = append(functions, f("proxy_set_buffer_bytes", 5, (*instance).hostSetBuffer))
	}
	return wasm.Host{"env": functions}
}

// put32 and put64 write a number into the module's memory.
func (s *instance) put32(at, v uint32) uint32 {
	b, ok := s.wasm.Bytes(at, 4)
	if !ok {
		return statusInvalidMemoryAccess
	}
	binary.LittleEndian.PutUint32(b, v)
	return statusOK
}

func (s *instance) put64(at uint32, v uint64) uint32 {
	b, ok := s.wasm.Bytes(at, 8)
	if !ok {
		return statusInvalidMemoryAccess
	}
	binary.LittleEndian.PutUint64(b, v)
	return statusOK
}

// hostLog is proxy_log(level, text, size).
func (s *instance) hostLog(p []uint64) uint32 {
	line, ok := s.wasm.Bytes(uint32(p[1]), uint32(p[2]))
	if !ok {
		return statusInvalidMemoryAccess
	}
	if uint32(p[0]) > 5 {
		return statusBadArgument
	}
	s.output.say(line)
	s.output.say([]byte{'\n'})
	s.filter.log.line(int(uint32(p[0])), line, s.last)
	s.last = false
	return statusOK
}

// hostBuffer is proxy_get_buffer_bytes(type, offset, most, &data, &size).
func (s *instance) hostBuffer(p []uint64) uint32 {
	var b []byte
	switch uint32(p[0]) {
	case bufferDownstreamData, bufferUpstreamData:
		switch {
		case s.stream != nil:
			if b = s.stream.buffer(); uint32(p[0]) != s.stream.r.buffer || b == nil {
				return statusNotFound
			}
		case s.of == nil || uint32(p[0]) == bufferUpstreamData:
			return statusNotFound
		default:
			b = s.of.First
		}
	case bufferVMConfig:
	case bufferPluginConfig:
		b = []byte(s.filter.cfg.Config)
	default:
		return statusNotFound
	}
	offset, most := uint64(uint32(p[1])), uint64(uint32(p[2]))
	if offset > uint64(len(b)) {
		return statusBadArgument
	}
	return s.give(b[offset:min(offset+most, uint64(len(b)))], uint32(p[3]), uint32(p[4]))
}

var errAllocate = errors.New("proxy_on_memory_allocate")

// give copies bytes into memory that the module allocates, and writes their address and length.
func (s *instance) give(b []byte, data, size uint32) uint32 {
	i := s.wasm
	_, ok1 := i.Bytes(data, 4)
	_, ok2 := i.Bytes(size, 4)
	if !ok1 || !ok2 {
		return statusInvalidMemoryAccess
	}
	at := uint64(0)
	if len(b) > 0 {
		if s.allocate == nil {
			return statusInternalFailure
		}
		var err error
		if at, err = i.Call(s.allocate, uint64(len(b))); err != nil {
			panic(errors.Join(errAllocate, err)) // ends the call that is in progress
		}
		to, ok := i.Bytes(uint32(at), uint32(len(b)))
		if !ok || uint32(at) == 0 {
			return statusInvalidMemoryAccess
		}
		copy(to, b)
	}
	if status := s.put32(data, uint32(at)); status != statusOK {
		return status
	}
	return s.put32(size, uint32(len(b)))
}

// path returns the parts of a property's path. Zero bytes separate the parts; some languages also end the path with
// a zero byte.
func (s *instance) path(at, n uint32) ([][]byte, uint32) {
	b, ok := s.wasm.Bytes(at, n)
	switch {
	case !ok:
		return nil, statusInvalidMemoryAccess
	case n > maxPath || n == 0:
		return nil, statusBadArgument
	}
	return bytes.Split(bytes.TrimSuffix(b, []byte{0}), []byte{0}), statusOK
}

// hostGet is proxy_get_property(path, size, &data, &size).
func (s *instance) hostGet(p []uint64) uint32 {
	path, status := s.path(uint32(p[0]), uint32(p[1]))
	if status != statusOK {
		return status
	}
	v, ok := s.property(path)
	if !ok {
		return statusNotFound
	}
	return s.give(v, uint32(p[2]), uint32(p[3]))
}

// hostSet is proxy_set_property(path, size, value, size).
func (s *instance) hostSet(p []uint64) uint32 {
	path, status := s.path(uint32(p[0]), uint32(p[1]))
	if status != statusOK {
		return status
	}
	value, ok := s.wasm.Bytes(uint32(p[2]), uint32(p[3]))
	if !ok {
		return statusInvalidMemoryAccess
	}
	if len(value) > maxValue {
		return statusBadArgument
	}
	if s.of == nil || string(path[0]) != "penstock" {
		return statusNotFound
	}
	return s.set(path[1:], value)
}

// hostClose is proxy_close_stream(type). It means a denial.
func (s *instance) hostClose(p []uint64) uint32 {
	if s.of == nil || uint32(p[0]) != streamDownstream && (s.stream == nil || uint32(p[0]) != streamUpstream) {
		return statusBadArgument
	}
	s.choose(Answer{Verdict: Deny})
	return statusOK
}
