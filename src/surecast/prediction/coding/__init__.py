"""Coded delivery by formula: decoding, losses along paths, recovery by gossip, and what to spend on each."""

from surecast.prediction.coding.budget import Budget, Choice, choose_coding
from surecast.prediction.coding.bursty_links import GilbertElliott, bursty_received
from surecast.prediction.coding.coding_report import messages_minimum, predict_coding
from surecast.prediction.coding.groups import GossipGroup, GroupAnswer, PathStory, PeerConnections, gossip_draws
from surecast.prediction.coding.lossy_network import Audience, ChannelAssumptions, audiences_of
from surecast.prediction.coding.packet_schemes import CODING_SCHEMES, Alternative, Forecaster, alternatives
from surecast.prediction.coding.ranks import (
    LossyPath,
    bursty_delivery_probability,
    decode_probability,
    end_ranks,
    on_paths_probability,
    packets_for,
    packets_needed_mean,
    rank_distribution,
    redundancy_for,
    systematic_decode_probability,
)

__all__ = [
    "CODING_SCHEMES",
    "Alternative",
    "Audience",
    "Budget",
    "ChannelAssumptions",
    "Choice",
    "Forecaster",
    "GilbertElliott",
    "GossipGroup",
    "GroupAnswer",
    "LossyPath",
    "PathStory",
    "PeerConnections",
    "alternatives",
    "audiences_of",
    "bursty_delivery_probability",
    "bursty_received",
    "choose_coding",
    "decode_probability",
    "end_ranks",
    "gossip_draws",
    "messages_minimum",
    "on_paths_probability",
    "packets_for",
    "packets_needed_mean",
    "predict_coding",
    "rank_distribution",
    "redundancy_for",
    "systematic_decode_probability",
]
