#!/bin/bash
# GRPO on GridSim with Miles: Qwen3-4B, full fine-tune on four GPUs, SGLang colocated with training.
#
# Before, on the machine that runs the envs (the same one will do) and from the folder that this runs in:
#
#   python serve.py &                                                         # 64 envs at once: a step plays 32
#   python -m agent_env.training.miles http://127.0.0.1:8200 data --max-turns 4
#
# and a warm start, qwen3-4b-gridsim-sft: the untrained model idles, and where all rollouts of a day score alike, GRPO
# has nothing to learn from. Then, in Miles' container, with agent-env[miles] installed into its Python:
#
#   bash miles_gridsim.sh [further flags for Miles' train.py, such as --use-wandb]
#
# Settings, by environment variable:
#   MODEL       folder of the warm start (default: qwen3-4b-gridsim-sft)
#   DATA        folder that the row writer wrote (default: data)
#   SAVE        folder for checkpoints (default: qwen3-4b-gridsim-grpo)
#   GPUS        how many (default: 4)
#   MILES_HOME  where Miles lies (default: /root/miles)
# A server with a token: export the variable that the rows name (AGENTENV_TOKEN) before running this, so that Ray's
# workers inherit it from `ray start`. Don't put it into the runtime environment, which Ray logs.

set -euo pipefail

HERE=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
MODEL=$(realpath -e -- "${MODEL:-qwen3-4b-gridsim-sft}")
DATA=$(realpath -e -- "${DATA:-data}")
SAVE=$(realpath -m -- "${SAVE:-qwen3-4b-gridsim-grpo}")
GPUS=${GPUS:-4}
MILES_HOME=${MILES_HOME:-/root/miles}
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}

MODEL_ARGS=(
    --train-backend fsdp                 # loads the Hugging Face folder as it is; trains the whole model (no LoRA)
    --hf-checkpoint "$MODEL"             # weights, tokenizer and chat template, for training and SGLang alike
    --attn-implementation flash_attention_2  # packed samples need varlen attention
    --gradient-checkpointing             # fits 48 GB
    --save "$SAVE"
    --save-interval 10                   # steps
)

DATA_ARGS=(
    --prompt-data "$DATA/train.jsonl"    # 2,000 days
    --input-key messages                 # the rows' chat messages
    --metadata-key metadata              # split, index, tools, server and settings: all that the agent function needs
    --rollout-shuffle                    # days in another order each epoch
    # No --apply-chat-template: the session server renders the chat, and a rendered prompt can't be played.
)

EVAL_ARGS=(
    --eval-prompt-data eval "$DATA/eval.jsonl"  # a name for the metrics (eval/eval), and the 200 days
    --eval-interval 10                   # steps; also before the first
    --n-samples-per-eval-prompt 1        # one rollout a day; at the training temperature, as no --eval-temperature is set
)

ROLLOUT_ARGS=(
    --num-rollout 20                     # steps
    --rollout-batch-size 4               # days a step ...
    --n-samples-per-prompt 8             # ... and rollouts a day: 32, which the server's max_concurrent_envs must cover
    --global-batch-size 32               # one optimizer step for them
    --rollout-temperature 1.1            # the warm start is rather sure of itself
    --rollout-max-response-len 1024      # tokens of one model turn (not of the rollout); a cut turn ends its rollout
)

SESSION_ARGS=(
    --use-session-server                 # records each chat as the tokens to train on
    --tito-model qwen3                   # how its chat template appends turns
    --apply-chat-template-kwargs '{"enable_thinking": false}'  # reaches the session server's rendering
    --custom-generate-function-path miles.rollout.generate_hub.agentic_tool_call.generate
    --custom-agent-function-path agent_env.training.miles.agent.run  # `abort` is found beside it
    --custom-rm-path agent_env.training.miles.agent.reward
    --dynamic-sampling-filter-path filters.keep_and_count  # leaves out failed groups, counts them by cause
    --custom-rollout-log-function-path miles_metrics.log_rollout  # turns, end reasons, time by phase
    --custom-eval-rollout-log-function-path miles_metrics.log_eval_rollout
)

SGLANG_ARGS=(
    --rollout-num-gpus-per-engine 1      # a 4B model fits one GPU: as many engines as GPUs
    --sglang-tool-call-parser qwen25     # without it, tool calls stay text and every rollout ends at once
    --sglang-reasoning-parser qwen3
    --sglang-mem-fraction-static 0.6     # the rest is training's
    --use-miles-router                   # sglang-router 0.3.2 drops the session server's input_ids: every turn a 502
)

GRPO_ARGS=(
    --advantage-estimator grpo
    --eps-clip 0.2
    --eps-clip-high 0.28                 # clip-higher: room for what the policy rarely does
    --entropy-coef 0.0
    --kl-coef 0.0                        # no reference model in memory
)

OPTIMIZER_ARGS=(
    --optimizer adam
    --lr 1e-6
    --lr-decay-style constant
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.98
)

CLUSTER_ARGS=(
    --actor-num-nodes 1
    --actor-num-gpus-per-node "$GPUS"
    --num-gpus-per-node "$GPUS"          # needed under --colocate with fewer than eight
    --colocate                           # SGLang and training take turns on the same GPUs
    --use-dynamic-batch-size             # packs samples of different lengths ...
    --max-tokens-per-gpu 8192            # ... up to this many tokens
)

# Ray takes the NVLink setting from here; Miles' launcher does the same.
if nvidia-smi topo -m 2>/dev/null | grep -q 'NV[0-9]'; then NVLS=1; else NVLS=0; fi

RUNTIME_ENV=$(python3 -c 'import json, sys; print(json.dumps({"env_vars": dict(pair.split("=", 1) for pair in sys.argv[1:])}))' \
    "PYTHONPATH=$MILES_HOME:/root/Megatron-LM:$HERE" \
    "PYTHONUNBUFFERED=1" \
    "NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-$NVLS}" \
    "MASTER_ADDR=$MASTER_ADDR" \
    "no_proxy=127.0.0.1,localhost,$MASTER_ADDR")

export PYTHONUNBUFFERED=1                # or Ray holds back what its workers print
export no_proxy=127.0.0.1,localhost      # a proxy must not get at loopback
ray stop --force
trap 'ray stop --force' EXIT
ray start --head --node-ip-address "$MASTER_ADDR" --num-gpus "$GPUS" --disable-usage-stats

# Submitted as Miles' launcher does, which itself refuses GPUs that it has no profile for.
ray job submit --address=http://127.0.0.1:8265 --runtime-env-json="$RUNTIME_ENV" -- \
    python3 "$MILES_HOME/train.py" \
    "${MODEL_ARGS[@]}" "${DATA_ARGS[@]}" "${EVAL_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${SESSION_ARGS[@]}" \
    "${SGLANG_ARGS[@]}" "${GRPO_ARGS[@]}" "${OPTIMIZER_ARGS[@]}" "${CLUSTER_ARGS[@]}" "$@"
