// Package signals sends signals to the process of a test.
package signals
