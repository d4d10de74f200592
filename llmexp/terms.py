"""Words of other programs and papers, with llmexp's name for the same thing; error messages look them up here."""

from __future__ import annotations

import re

# What is unknown -> what to write -> the words that mean it, in small letters without - _ . and blanks.
_WORDS = {
    "atom": {
        "F": "flash flashattention flashattn flashattention2 fa fa2 fa3 sdpa",
        "R": "recomputation recompute checkpointing gradientcheckpointing activationcheckpointing gc ac",
        "RS": "selective selectiverecomputation sac",
        "C": "compile torchcompile inductor",
        "Z1": "zero1 stage1",
        "Z2": "zero2 stage2",
        "Z3": "zero zero3 stage3",
        "Z2+O or Z3+O": "offload cpuoffload zerooffload zeroinfinity",
        "L, with task=finetune": "lora peft adapter",
        "QL, with task=finetune": "qlora",
        "P, with task=finetune": "prompt prompttuning ptuning softprompt",
        "Naive, with task=finetune": "full fullft fullfinetuning",
        "Q, or QL with task=finetune": "4bit int4 nf4 quantization quantized bnb bitsandbytes",
        "Naive": "none baseline vanilla plain default",
        "Z3, with engine=torch (its FSDP2)": "fsdp fsdp2 fullshard",
        "Naive, with engine=torch": "ddp dp",
        "engine=deepspeed": "deepspeed ds",
        "engine=megatron": "megatron megatronlm mcore",
        "parallelism.tp=2 beside the method": "tp tensorparallel",
        "parallelism.pp=2 beside the method": "pp pipeline pipelineparallel",
        "parallelism.cp=2 beside the method": "cp sp ulysses ring contextparallel sequenceparallel",
        "kernels.liger=true beside the method": "liger",
        "precision=bf16_mixed beside the method": "bf16 amp mixed",
        "precision=fp16 beside the method": "fp16",
    },
    "key": {
        "serve.texts.path=<file of prompts>": "serve.dataset serve.data serve.prompts serve.datasetpath serve.file",
        "serve.sampling.n=<answers>, which all come back: vLLM has no best_of any more": "serve.sampling.bestof bestof",
        "batch.micro": "batchsize microbatch microbatchsize bs mbs perdevicetrainbatchsize trainmicrobatchsizepergpu",
        "batch.accumulation": "accumulationsteps gradientaccumulation gradientaccumulationsteps gradaccum gas",
        "batch.micro and batch.accumulation, which make the global batch": (
            "globalbatch globalbatchsize trainbatchsize gbs"
        ),
        "optimizer.lr": "lr learningrate",
        "data.seq_len": "sequencelength seqlength seqlen maxseqlen maxlength maxlen contextlength blocksize cutofflen",
        "hardware.devices_per_node=<cards>, of the machine, or parallelism.dp=<ranks>, of a run": (
            "gpus ngpu ngpus numgpus gpu devices cards nprocpernode"
        ),
        "parallelism.dp=<ranks>": "ranks worldsize numprocesses dataparallel",
        "hardware.nodes": "nodes nnodes numnodes",
        "parallelism.tp": "tensorparallel tensorparallelsize tensormodelparallelsize tpsize",
        "parallelism.shard": "hsdp hybridshard",
        "parallelism.pp": "pipelineparallel pipelineparallelsize pipelinemodelparallelsize ppsize",
        "parallelism.cp": "contextparallel contextparallelsize sequenceparallelsize sp cpsize",
        "parallelism.ep": "expertparallel expertparallelsize expertmodelparallelsize epsize",
        "adapter.rank": "lorar lorarank r rank",
        "adapter.alpha": "loraalpha",
        "adapter.dropout": "loradropout",
        "adapter.targets": "targetmodules loratargetmodules loratarget",
        "measure.steps": "steps maxsteps trainiters iters iterations numsteps",
        "measure.warmup_steps": "warmup warmupiters",
        "measure.repeats": "repeat runs trials",
        "measure.order": "interleave shuffle drift rounds turns",
        "measure.tokens=<budget>, or measure.steps": "epochs numtrainepochs maxtokens",
        "sweep.name": "name runname tag",
        "sweep.outputs": "output outputs outputdir outdir",
        "data=<option or file>": "dataset datasetpath trainfile datapath",
        "data.tokenizer": "tokenizername tokenizerpath",
        "model=<option, folder or hub name>": "modelname modelpath modelnameorpath modelid checkpoint pretrained",
        "precision=bf16_mixed": "bf16 bfloat16 dtype torchdtype amp mixedprecision",
        "precision=fp16": "fp16 float16 half",
        "precision=fp8, with engine=torch": "fp8 float8",
        "precision=fp32": "fp32 float32",
        "precision=tf32": "tf32 allowtf32 usetf32",
        "method=L task=finetune": "lora uselora peft",
        "method=QL task=finetune": "qlora loadin4bit loadin8bit quantization",
        "method=Z1, method=Z2 or method=Z3": "zero zerostage stage zerooptimization deepspeed",
        "method=Z3 engine=torch": "fsdp",
        "method=R": "gradientcheckpointing activationcheckpointing recompute recomputation",
        "method=F": "flash flashattention flashattn useflashattn attnimplementation",
        "method=C": "compile torchcompile",
        "method=Z2+O or method=Z3+O": "offload cpuoffload offloadoptimizer",
        "memory.optimizer_folder=<folder> with method=Z3+O": "nvme nvmepath zeroinfinity diskoffload",
        "kernels.liger=true": "liger useliger useligerkernel",
        "kernels.fused_accumulation=true": "gradientaccumulationfusion fusedwgrad wgradaccumulation",
        "kernels.fused_projections=true": "fusedqkv fuseqkv packedqkv qkvproj gateupproj mergedqkv",
        "kernels.chunked_loss=true": "linearcrossentropy chunkedcrossentropy cutcrossentropy",
        "optimizer=<option>": "optim",
        "hydra/launcher=slurm": "slurm launcher sbatch",
        "hydra.launcher.partition, with hydra/launcher=slurm": "partition",
        "hydra.launcher.time, with hydra/launcher=slurm": "time walltime timelimit",
        "tracking.also=wandb": "wandb",
        "tracking.also=tensorboard": "tensorboard",
        "tracking=mlflow, tracking=none or tracking.also=<trackers>": "reportto logger",
    },
    "command": {
        "--help": "help usage",
        "llmexp method=Naive,F model=tiny, without a word for it": (
            "run train measure benchmark bench start launch sweep"
        ),
        "plan": "show dryrun explain preview",
        "status": "ls list ps progress",
        "report": "table results result summary",
        "doctor": "check diagnose env info",
        "ui": "mlflow dashboard web",
        "llmexp task=serve model=tiny, without a word for it": "serve serving server generate inference",
        "compare": "diff",
        "logs": "log tail",
        "cancel": "stop kill scancel",
        "reproduce": "repeat rerun replay",
    },
    "precision": {
        "precision=bf16_mixed, or bf16_pure, whose master copy and moments are bf16 too": "bf16 bfloat16 mixed amp 16",
        "precision=fp16": "float16 half",
        "precision=fp8, or fp8_pure, whose states are those of bf16_pure": "float8 fp8mixed",
        "precision=fp32": "float32 float single full",
    },
    "task": {
        "task=finetune": "sft ft finetuning instruct lora",
        "task=pretrain": "pt train training pretraining",
        "task=serve": "serving inference generate generation server",
        "task=micro": "microbenchmark microbenchmarks bench bandwidth nccl gemm",
    },
    "engine": {
        "engine=torch": "pytorch ddp fsdp fsdp2",
        "engine=deepspeed": "ds zero zero3",
        "engine=megatron": "megatronlm mcore megatroncore nemo",
        "engine=script engine.options.preset=trainer": "trainer hf huggingface transformers accelerate",
        "engine=script engine.options.preset=<name>": "trl llamafactory torchtitan",
        "engine=script, which runs any training program": "custom own python lightning axolotl unsloth nanogpt",
    },
    "optimizer": {
        "optimizer=adamw": "adam fusedadam adamwtorch",
        "optimizer=adamw8bit": "adam8bit pagedadamw8bit adamwbnb8bit",
    },
    "model": {
        "model=1b": "llama1b tinyllama",
        "model=7b": "llama llama2 llama7b llama27b llama27bhf",
        "model=13b": "llama13b llama213b llama213bhf",
        "model=70b": "llama70b llama270b llama270bhf",
        "model=llama3-8b, or model=qwen3-8b": "8b",
    },
    "hardware": {
        "hardware=gpu": "cuda nvidia gpus",
        "hardware=auto": "local localhost here this",
        "hardware=auto on the machine itself; hardware=a800 is its chip, with slower NVLink": "a100",
    },
    "data": {
        "data=instructions": "alpaca sharegpt chat sft",
        "data=synthetic": "random dummy fake",
        "data=hf data.path=<its name>": "huggingface dataset wikitext c4 openwebtext fineweb redpajama",
    },
    "tracker": {
        "tracking=mlflow": "mlflow",
        "tensorboard": "tb tensorboardx",
        "wandb": "weightsandbiases wb",
    },
    "tracking": {
        "tracking.also=wandb": "wandb weightsandbiases",
        "tracking.also=tensorboard": "tensorboard tensorboardx tb",
        "tracking.also=tensorboard or tracking.also=wandb: no other tracker is offered": "comet aim neptune",
        "tracking=none": "off no false",
    },
}


def _plain(word: str) -> str:
    return re.sub(r"[-_. ]", "", word.lower())


MEANT = {
    what: {_plain(word): meant for meant, words in table.items() for word in words.split()}
    for what, table in _WORDS.items()
}


def meant_by(what: str, word: str) -> str | None:
    """Return what to write for a word of another program, or None for a word that is not known."""
    return MEANT.get(what, {}).get(_plain(word))
