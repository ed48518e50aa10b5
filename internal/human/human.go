// Package human prints what people read (sizes, rates, names) and parses the
// sizes that they type.
package human

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// Size prints a number of bytes with a binary unit: "4.0 MiB".
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v /= 1 << 10; v < 1<<10 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

// ShortSize prints a number of bytes exactly, as ParseSize reads it: "4K".
func ShortSize(n int64) string {
	for i, u := range []string{"G", "M", "K"} {
		if unit := int64(1) << (30 - 10*i); n >= unit && n%unit == 0 {
			return fmt.Sprintf("%d%s", n/unit, u)
		}
	}
	return strconv.FormatInt(n, 10)
}

// Rate prints bytes per second with a decimal unit: "51.23GB/s".
func Rate(bps float64) string {
	v, unit := Decimal(bps)
	return fmt.Sprintf("%.4g%sB/s", v, unit)
}

// Speed prints bytes per second in a sentence: "51.2 GB/s".
func Speed(bps float64) string {
	v, unit := Decimal(bps)
	return Digits(v) + " " + unit + "B/s"
}

// Digits prints a number in three digits, never with an exponent: "0.25", "9.99", "1000".
func Digits(n float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(n, 'g', 3, 64), 64) // of a number
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// Decimal divides a number by its decimal unit: 1.5 and "G" for 1.5e9.
func Decimal(n float64) (v float64, unit string) {
	switch {
	case n >= 1e9:
		return n / 1e9, "G"
	case n >= 1e6:
		return n / 1e6, "M"
	case n >= 1e3:
		return n / 1e3, "k"
	}
	return n, ""
}

// Count prints a number of things: "1 tensor", "2 tensors".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Duration prints a time for people, in three digits: "1.27 ms".
func Duration(d time.Duration) string {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	s := d.Round(unit).String()
	i := strings.LastIndexAny(s, "0123456789") + 1
	return s[:i] + " " + s[i:]
}

// Name prints the name of a file or tensor on one line. It quotes a name that is
// empty, or that has characters which break the line or control the terminal.
func Name(s string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable) {
		return strconv.Quote(s)
	}
	return s
}

// Text escapes characters that control a terminal in a text of several lines, such
// as an error that contains names.
func Text(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || n > 1) {
			b.WriteString(s[:n])
		} else {
			b.WriteString(strings.Trim(strconv.Quote(s[:n]), `"`))
		}
		s = s[n:]
	}
	return b.String()
}

// Table returns a writer that aligns columns separated by tabs. The caller must call
// Flush.
func Table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0) }

// SoftMark ends a line of numbers measured on the software machine, which say nothing
// about hardware.
func SoftMark(soft bool) string {
	if soft {
		return " SOFTWARE-MACHINE"
	}
	return ""
}
