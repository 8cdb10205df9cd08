//! Clears the upper halves of the vector registers after other code has used them.
//!
//! Kernels in hand-written assembly may return with those halves in use. On many processors every
//! older vector instruction in the thread is then slow, those inside `exp` and `ln` of the system's
//! mathematical library among them, until the halves are cleared.

/// Clears the upper halves. Call it after a call into such kernels.
pub(crate) fn clear_upper_halves() {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX. No value lives in an upper half here: compiled code keeps
        // none across a call.
        unsafe { clear() }
    }
}

/// # Safety
/// The processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn clear() {
    std::arch::x86_64::_mm256_zeroupper();
}
