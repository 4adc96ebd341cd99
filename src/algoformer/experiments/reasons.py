"""Why claims of the papers came out otherwise here, where it is known, and what a result does not say of itself."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "ahn2023_fig1": "the exact optimum of three layers with B = 0 is itself 2.7 % of E y²: nothing trains below it",
    "algoformer2024_fig2a": "not known; curves still fall, and in pilots at the paper's 1e-4 the standard leads too",
    "algoformer2024_fig2b": "likely pre: R² for phi is 0.27 after it, and 0.49 from its inputs (`ours_represented`)",
    "algoformer2024_fig2c": "one of three standard runs never learned the first link (error 0.58; the others 0.17)",
    "gatmiry2024_fig1": "the exact optimum is a I with a well below 1 at small n: the shape is right, not the scale",
    "gatmiry2024_fig2": "the exact optima of loops and layers are as far apart as the trained models",
    "gatmiry2024_fig3": "rare prompts carry the mean, and more loops make them explode; the median improves",
    "gatmiry2024_fig4": "the exact optimum moves away from I as loops are added; one loop does converge, and no slower",
    "giannou2024_fig2": "Newton from a multiple of S spends its first steps on scale; from one of I the claim holds",
    "giannou2024_fig3": "not known; the models are smaller than the paper's (d = 5, 800 steps)",
}

REMARKS: dict[str, str] = {
    "fu2024_fig19": (
        "By the steps that match, the middle layers are second-order: gradient steps more than double from layer to "
        "layer. By the similarity of errors the last four layers are nearer to gradient descent, by less than 0.001."
    ),
    "ours_headline": (
        "The standard transformer came apart. It took 50,000 steps to learn with 5 inputs, and at the constant rate "
        "that pilots of 10,000 steps had chosen the attention of its sixth layer then saturated: in float32 the "
        "gradient there is rounding error, which grows without bound, and clipping the whole by it stops the other "
        "layers (as its weights showed, which are too large to be kept). With a cosine and noise the same model learns "
        "(`fu2024_fig19`)."
    ),
}
