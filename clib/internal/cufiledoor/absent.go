package cufiledoor

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
)

// The functions in this file exist, because programs look all of them up, and
// say with the code that their caller expects that the feature is not there.

// BatchIOSetUp is cuFileBatchIOSetUp.
func (d *Door) BatchIOSetUp(_ cmem.Ptr, _ uint32) error { return cufile.InternalBatchSetupError }

// BatchIOSubmit is cuFileBatchIOSubmit.
func (d *Door) BatchIOSubmit(_ handle.ID, _ uint32, _ cmem.Ptr, _ uint32) error {
	return cufile.InternalBatchSubmitError
}

// BatchIOGetStatus is cuFileBatchIOGetStatus.
func (d *Door) BatchIOGetStatus(_ handle.ID, _ uint32, _, _, _ cmem.Ptr) error {
	return cufile.InternalBatchGetStatusError
}

// BatchIOCancel is cuFileBatchIOCancel.
func (d *Door) BatchIOCancel(_ handle.ID) error { return cufile.InternalBatchCancelError }

// BatchIODestroy is cuFileBatchIODestroy.
func (d *Door) BatchIODestroy(_ handle.ID) {}

// StreamRegister is cuFileStreamRegister.
func (d *Door) StreamRegister(_ handle.ID, _ uint32) error { return cufile.AsyncNotSupported }

// StreamDeregister is cuFileStreamDeregister.
func (d *Door) StreamDeregister(_ handle.ID) error { return cufile.AsyncNotSupported }

// ReadAsync is cuFileReadAsync.
func (d *Door) ReadAsync(_ handle.ID, _, _, _, _, _ cmem.Ptr, _ handle.ID) error {
	return cufile.AsyncNotSupported
}

// WriteAsync is cuFileWriteAsync.
func (d *Door) WriteAsync(_ handle.ID, _, _, _, _, _ cmem.Ptr, _ handle.ID) error {
	return cufile.AsyncNotSupported
}

// GetParameterSizeT is cuFileGetParameterSizeT.
func (d *Door) GetParameterSizeT(_ int32, _ cmem.Ptr) error { return cufile.DriverInvalidProps }

// GetParameterBool is cuFileGetParameterBool.
func (d *Door) GetParameterBool(_ int32, _ cmem.Ptr) error { return cufile.DriverInvalidProps }

// GetParameterString is cuFileGetParameterString.
func (d *Door) GetParameterString(_ int32, _ cmem.Ptr, _ int32) error {
	return cufile.DriverInvalidProps
}

// SetParameterSizeT is cuFileSetParameterSizeT.
func (d *Door) SetParameterSizeT(_ int32, _ uint64) error { return cufile.DriverInvalidProps }

// SetParameterBool is cuFileSetParameterBool.
func (d *Door) SetParameterBool(_ int32, _ bool) error { return cufile.DriverInvalidProps }

// SetParameterString is cuFileSetParameterString.
func (d *Door) SetParameterString(_ int32, _ cmem.Ptr) error { return cufile.DriverInvalidProps }

// GetParameterMinMaxValue is cuFileGetParameterMinMaxValue.
func (d *Door) GetParameterMinMaxValue(_ int32, _, _ cmem.Ptr) error {
	return cufile.DriverInvalidProps
}

// SetParameterPosixPoolSlabArray is cuFileSetParameterPosixPoolSlabArray.
func (d *Door) SetParameterPosixPoolSlabArray(_, _ cmem.Ptr, _ int32) error {
	return cufile.DriverInvalidProps
}

// GetParameterPosixPoolSlabArray is cuFileGetParameterPosixPoolSlabArray.
func (d *Door) GetParameterPosixPoolSlabArray(_, _ cmem.Ptr, _ int32) error {
	return cufile.DriverInvalidProps
}

// SetParameterGpuBounceBufferSlabArray is cuFileSetParameterGpuBounceBufferSlabArray.
func (d *Door) SetParameterGpuBounceBufferSlabArray(_, _ cmem.Ptr, _ int32) error {
	return cufile.DriverInvalidProps
}

// GetParameterGpuBounceBufferSlabArray is cuFileGetParameterGpuBounceBufferSlabArray.
func (d *Door) GetParameterGpuBounceBufferSlabArray(_, _ cmem.Ptr, _ int32) error {
	return cufile.DriverInvalidProps
}

// SetStatsLevel is cuFileSetStatsLevel: statistics stay off.
func (d *Door) SetStatsLevel(level int32) error {
	if level < 0 || level > 3 {
		return cufile.InvalidValue
	}
	if level > 0 {
		return cufile.DriverUnsupportedLimit
	}
	return nil
}

// GetStatsLevel is cuFileGetStatsLevel.
func (d *Door) GetStatsLevel(out cmem.Ptr) error {
	cmem.Store(out, int32(0))
	return nil
}

// StatsStart is cuFileStatsStart.
func (d *Door) StatsStart() error { return d.noStats() }

// StatsStop is cuFileStatsStop.
func (d *Door) StatsStop() error { return d.noStats() }

// StatsReset is cuFileStatsReset.
func (d *Door) StatsReset() error { return d.noStats() }

// GetStatsL1 is cuFileGetStatsL1.
func (d *Door) GetStatsL1(_ cmem.Ptr) error { return d.noStats() }

// GetStatsL2 is cuFileGetStatsL2.
func (d *Door) GetStatsL2(_ cmem.Ptr) error { return d.noStats() }

// GetStatsL3 is cuFileGetStatsL3.
func (d *Door) GetStatsL3(_ cmem.Ptr) error { return d.noStats() }

// noStats is the answer for a level that is too low.
func (d *Door) noStats() error {
	if d.UseCount() == 0 {
		return cufile.DriverNotInitialized
	}
	return cufile.InvalidValue
}

// GetBARSizeInKB is cuFileGetBARSizeInKB.
func (d *Door) GetBARSizeInKB(_ int32, _ cmem.Ptr) error { return cufile.PlatformNotSupported }

// DriverSetP2PFlags is cuFileDriverSetP2PFlags.
func (d *Door) DriverSetP2PFlags(_, _ int32) error { return cufile.InvalidValue }

// DriverGetP2PFlags is cuFileDriverGetP2PFlags.
func (d *Door) DriverGetP2PFlags(_ int32, _ cmem.Ptr) error { return cufile.InvalidValue }

// ExportPCIeTopology is cuFileExportPCIeTopology.
func (d *Door) ExportPCIeTopology(_ cmem.Ptr) error { return cufile.PlatformNotSupported }
