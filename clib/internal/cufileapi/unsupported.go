package cufileapi

import (
	"errors"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
)

// The functions in this file exist, because programs look all of them up, and
// say with a code that their caller expects that the feature is not there. They
// belong to releases after 1.15.

func absent(function string, code cufile.Code, why string) error {
	return &cufile.Error{Op: "call", Object: function, Code: code, Err: errors.New("it is not there yet: " + why)}
}

const (
	noBounce   = "Culvert has no bounce buffers on the GPU"
	noP2PFlags = "routes are chosen by file and memory; CULVERT_LOG=errors and culvert check tell which and why"
	noTopology = "culvert check tells what it knows of the topology"
)

// SetParameterGpuBounceBufferSlabArray is cuFileSetParameterGpuBounceBufferSlabArray.
func (a *API) SetParameterGpuBounceBufferSlabArray(_, _ cmem.Ptr, _ int32) error {
	return absent("cuFileSetParameterGpuBounceBufferSlabArray", cufile.DriverInvalidProps, noBounce)
}

// GetParameterGpuBounceBufferSlabArray is cuFileGetParameterGpuBounceBufferSlabArray.
func (a *API) GetParameterGpuBounceBufferSlabArray(_, _ cmem.Ptr, _ int32) error {
	return absent("cuFileGetParameterGpuBounceBufferSlabArray", cufile.DriverInvalidProps, noBounce)
}

// DriverSetP2PFlags is cuFileDriverSetP2PFlags.
func (a *API) DriverSetP2PFlags(_, _ int32) error {
	return absent("cuFileDriverSetP2PFlags", cufile.InvalidValue, noP2PFlags)
}

// DriverGetP2PFlags is cuFileDriverGetP2PFlags.
func (a *API) DriverGetP2PFlags(_ int32, _ cmem.Ptr) error {
	return absent("cuFileDriverGetP2PFlags", cufile.InvalidValue, noP2PFlags)
}

// ExportPCIeTopology is cuFileExportPCIeTopology.
func (a *API) ExportPCIeTopology(_ cmem.Ptr) error {
	return absent("cuFileExportPCIeTopology", cufile.PlatformNotSupported, noTopology)
}
