//go:build !linux

package pipe

// readLimits returns limits that allow nothing.
func readLimits() limits { return limits{pageSize: 4096, maxSize: DefaultSize} }
