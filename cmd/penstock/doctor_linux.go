package main

import (
	"encoding/json"
	"errors"

	"github.com/penstock/penstock/bench/syscalls"
	"github.com/penstock/penstock/internal/doctor"
)

// Run examines, prints, and fails if Penstock cannot run here.
func (c *doctorCmd) Run(e *env) error {
	report := doctor.Examine(doctor.Options{Sessions: affordableByDefault, Counter: counter})
	if err := c.write(e, report); err != nil {
		return err
	}
	if !report.Able {
		return errors.New("doctor: something that Penstock cannot run without is missing")
	}
	return nil
}

func (c *doctorCmd) write(e *env, report *doctor.Report) error {
	if !c.JSON {
		return report.WriteText(e.stdout)
	}
	out := json.NewEncoder(e.stdout)
	out.SetEscapeHTML(false)
	return out.Encode(report)
}

// counter is what penstock bench counts system calls with.
func counter() (tool string, err error) {
	found, err := syscalls.Find()
	if err != nil {
		return "", err
	}
	return found.Tool(), nil
}
