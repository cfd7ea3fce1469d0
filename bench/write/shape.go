package write

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"github.com/penstock/penstock/bench/report"
)

// BatchSize is how many bytes of pieces a producer has ready at a time, in bytes.
const BatchSize = 64 << 10

// A Shape is the composition of a batch.
type Shape struct {
	Name   string `json:"name"`   // "1,300 B"
	Pieces []int  `json:"-"`      // their lengths, in order
	Count  int    `json:"pieces"` // how many they are
	Bytes  int    `json:"bytes"`  // of the batch
	// Size is that of each piece, 0 where they differ.
	Size int `json:"piece_bytes,omitempty"`
}

// Equal is a batch of pieces of so many bytes.
func Equal(size int) Shape {
	count := max(BatchSize/size, 1)
	s := Shape{Name: sizeName(size), Pieces: make([]int, count), Count: count, Bytes: count * size, Size: size}
	for i := range s.Pieces {
		s.Pieces[i] = size
	}
	return s
}

// Message is a batch of a header, a payload and a trailer, 16 KiB in all.
func Message() Shape {
	const header, trailer, all = 256, 16, 16 << 10
	return Shape{
		Name:   fmt.Sprintf("%d B of header, %s B of payload, %d B of trailer", header, report.Exact(all-header-trailer), trailer),
		Pieces: []int{header, all - header - trailer, trailer}, Count: 3, Bytes: all,
	}
}

// sizeName writes 1,300 B, 64 KiB.
func sizeName(size int) string {
	if size >= 1<<10 && size%(1<<10) == 0 {
		return fmt.Sprintf("%s KiB", report.Exact(int64(size>>10)))
	}
	return report.Exact(int64(size)) + " B"
}

// batches is how many batches have n bytes, at least one.
func (s *Shape) batches(n int64) int64 {
	return max(int64(math.Ceil(float64(n)/float64(s.Bytes))), 1)
}

// ProfileName is the file in a directory for the CPU profile of a way and a shape:
// dir/vecio-1300.pprof.
func ProfileName(dir, way string, s *Shape) string {
	name := "message"
	if s.Size > 0 {
		name = strconv.Itoa(s.Size)
	}
	return filepath.Join(dir, way+"-"+name+".pprof")
}
