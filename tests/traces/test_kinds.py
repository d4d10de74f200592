"""The kind of work by the names that libraries and compilers give to kernels."""

from __future__ import annotations

import pytest

from llmexp.traces.kinds import ATTENTION, COLLECTIVE, COPYING, GEMM, OTHER, kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", GEMM),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", GEMM),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align8>(Params)", GEMM),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", GEMM),
        ("triton_tem_fused_addmm_3", GEMM),
        ("triton_tem_fused_mm_0", GEMM),
        ("aten::_grouped_mm", GEMM),
        ("triton_tem_fused_flex_attention_0", ATTENTION),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Flash_fwd_params)", ATTENTION),
        ("fmha_cutlassB_bf16_aligned_64x64_k64_sm80", ATTENTION),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16", ATTENTION),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", COLLECTIVE),
        ("Memcpy HtoD (Pinned -> Device)", COPYING),
        ("triton_red_fused_mean_mul_pow_1", "reduction"),
        ("multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor>", "optimizer"),
        ("a kernel of tomorrow", OTHER),
    ],
)
def test_a_kernel_has_the_kind_of_its_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind
