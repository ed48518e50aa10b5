package human

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes with an optional binary unit: "4096", "4K", "64k",
// "16MiB", "8G" or "1T". "1MB" is refused: it would be 10^6 to some.
func ParseSize(s string) (int64, error) {
	digits, shift := s, 0
	unit := strings.ToUpper(strings.TrimSuffix(s, "iB"))
	if i := strings.IndexAny(unit, "KMGT"); i >= 0 && i == len(unit)-1 {
		digits, shift = unit[:i], 10*(1+strings.IndexByte("KMGT", unit[i]))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > 1<<62>>shift:
		return 0, fmt.Errorf("size %q is too large", s)
	case err != nil || n < 0:
		return 0, fmt.Errorf("invalid size %q (want bytes, or a size such as 4K, 512M or 8G)", s)
	}
	return n << shift, nil
}

// ParseRate reads bytes per second with an optional decimal unit, as Rate prints them:
// "500k", "100M", "100MB", "2.5GB/s". "" is 0.
func ParseRate(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	digits, unit := strings.TrimSuffix(strings.TrimSuffix(s, "/s"), "B"), 1.0
	if i := len(digits) - 1; i > 0 {
		if u, ok := rateUnits[digits[i]]; ok {
			digits, unit = digits[:i], u
		}
	}
	n, err := strconv.ParseFloat(digits, 64)
	n *= unit
	if err != nil || strings.Trim(digits, "0123456789.") != "" || n < 1 || n > 1e15 {
		return 0, fmt.Errorf("invalid rate %q (want bytes per second, such as 500k, 100M or 2.5G, from 1 to 1000T)", s)
	}
	return int64(n), nil
}

var rateUnits = map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6, 'G': 1e9, 'T': 1e12}

// ParseSizes reads a size, a list "4K,64K", or a range "4K:16M:x4" that grows by
// a factor. No size may be 0.
func ParseSizes(s string) ([]int64, error) {
	if parts := strings.Split(s, ":"); len(parts) == 3 {
		return sizeRange(parts[0], parts[1], parts[2])
	}
	var list []int64
	for _, item := range strings.Split(s, ",") {
		n, err := ParseSize(item)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, fmt.Errorf("size %q must not be 0", item)
		}
		list = append(list, n)
	}
	return list, nil
}

func sizeRange(from, to, step string) ([]int64, error) {
	lo, err := ParseSize(from)
	if err != nil {
		return nil, err
	}
	hi, err := ParseSize(to)
	if err != nil {
		return nil, err
	}
	factor, err := strconv.ParseInt(strings.TrimPrefix(step, "x"), 10, 32)
	if err != nil || factor < 2 || lo < 1 || hi < lo {
		return nil, fmt.Errorf("invalid range of sizes %s:%s:%s (want one such as 4K:16M:x4)", from, to, step)
	}
	var list []int64
	for n := lo; n <= hi; n *= factor {
		list = append(list, n)
	}
	return list, nil
}
