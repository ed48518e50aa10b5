package dev

// A Seam holds the operating system of a public struct without showing it. The
// struct embeds it under an unexported name; internal packages use [Of].
type Seam struct{ os OS }

func (s *Seam) seam() *Seam { return s }

// An Owner is a struct that embeds a [Seam]: machine.Machine, soft.Machine,
// kernel.OS.
type Owner interface{ seam() *Seam }

// Of returns the operating system of a machine.
func Of(m Owner) OS { return m.seam().os }

// With sets the operating system of a machine and returns the machine.
func With[M Owner](m M, o OS) M {
	m.seam().os = o
	return m
}
